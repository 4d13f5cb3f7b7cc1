"""What the programs share."""

from __future__ import annotations

import json
from typing import Any

import ray

from nemo_lens.api import SpanRegistry

# Ray logs that it is started to stderr, and what workers print there too.
START: dict[str, Any] = {"num_cpus": 3, "include_dashboard": False, "object_store_memory": 150 * 2**20}

SpanRegistry.register("ray_programs", ["calls", "quiet"], {"default": ["calls"]})


def say(**facts: Any) -> None:
    """Tell the test."""
    print(json.dumps(facts), flush=True)


def items(generator: Any) -> list[Any]:
    """Return what a streaming generator of object references yields."""
    return [ray.get(reference) for reference in generator]
