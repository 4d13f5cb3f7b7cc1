"""Attribute and metric names as they go over the wire, and the types that belong to them.

A constant is its name in upper case, dots to underscores: ``NV_DL_RANK`` is ``nv.dl.rank``; ``gen_ai.`` becomes
``GENAI_``. Fixed for the process is a resource attribute, "which one?" is a span attribute, a number that moves is a
metric; no name is two of them.
"""

from __future__ import annotations

from nemo_lens.api.semconv.metrics import *  # noqa: F403 - one place to import any name from
from nemo_lens.api.semconv.otel_sdk import *  # noqa: F403
from nemo_lens.api.semconv.resource import *  # noqa: F403
from nemo_lens.api.semconv.slurm import *  # noqa: F403
from nemo_lens.api.semconv.span import *  # noqa: F403

# The OpenTelemetry semantic conventions that the standard names (gen_ai, k8s, host, service, process, deployment, otel,
# error) follow. Later versions keep these names; the GenAI ones have moved to a repository of their own since.
SEMCONV_VERSION = "1.37.0"
