"""Public names of the Ray integration: the context with every call, workers set up, actors flushed.

Importing it imports no Ray. ``docs/integrations/ray.md`` tells how the parts work together.
"""

from __future__ import annotations

from nemo_lens.contrib.ray._calls import trace_actor, traced_remote_call
from nemo_lens.contrib.ray._carrier import extract_ray_context, inject_ray_context
from nemo_lens.contrib.ray._dispatch import ray_dispatch_with_context
from nemo_lens.contrib.ray._flush import flush_actors
from nemo_lens.contrib.ray._instrument import instrument_ray
from nemo_lens.contrib.ray._runtime_env import ray_runtime_env
from nemo_lens.contrib.ray._workers import setup_worker

__all__ = [
    "extract_ray_context",
    "flush_actors",
    "inject_ray_context",
    "instrument_ray",
    "ray_dispatch_with_context",
    "ray_runtime_env",
    "setup_worker",
    "trace_actor",
    "traced_remote_call",
]
