"""What the programs share: set-up, words to the test, the choice of the scenario."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from nemo_lens.api import NemoLensConfig, SpanRegistry, setup_telemetry

RUN_ID = "run-1"


def say(**facts: Any) -> None:
    """Tell the test something: one line, in one write, so that processes do not mix theirs."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def set_up(rank: int = 2, **options: Any) -> Any:
    """Set telemetry up with every span group open; where to, the environment says."""
    SpanRegistry.register("process", ["work"])
    config = NemoLensConfig.from_env()
    config.enabled = True
    config.span_groups = "all"
    config.run_id = RUN_ID
    config.service_name = "process-test"
    for name in [name for name in options if hasattr(config, name)]:
        setattr(config, name, options.pop(name))
    return setup_telemetry(config, resource_attributes={"nv.dl.rank": rank}, **options)


def write_log(handle: Any, body: str) -> None:
    """Write a log record through the handle's logger provider."""
    handle.logger_provider.get_logger("process.log").emit(body=body)


def wait_for_test() -> None:
    """Wait until the test says to go on."""
    os.read(0, 1)


def main(scenarios: dict[str, Any]) -> None:
    """Run the scenario that the command line names, with its other arguments."""
    scenario: Callable[..., None] = scenarios[sys.argv[1]]
    scenario(*sys.argv[2:])
