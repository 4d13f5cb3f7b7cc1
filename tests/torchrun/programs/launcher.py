"""Programs that start torchrun: from a span of their own, from Python without a command line, for two nodes.

usage: launcher.py SCENARIO
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nemo_lens.api import NemoLensConfig, inject_context, setup_telemetry, span_cm

RANK_PROGRAM = str(Path(__file__).parent / "rank.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# Two nodes find each other here; the network namespace is this run's alone.
ENDPOINT = "127.0.0.1:29400"


def say(**facts: Any) -> None:
    """Tell the test something in one line."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def configuration() -> NemoLensConfig:
    """Return settings made in code, of which the environment says nothing."""
    config = NemoLensConfig.from_env()
    config.enabled, config.span_groups, config.user = True, "default,detail", "ada"
    return config


def command_line() -> None:
    """A launcher that starts torchrun inside a span, as a process with an environment of its own."""
    config = configuration()
    launcher = {"nv.dl.role": "launcher", "service.instance.id": "launcher"}
    with setup_telemetry(config, resource_attributes=launcher) as handle, span_cm("launch"):
        say(launched=handle.resource_attributes["nemo.run.id"])
        environment = {**os.environ, **config.to_env()}
        inject_context(environment)
        command = [*TORCHRUN, "--standalone", "--nproc-per-node=4", RANK_PROGRAM, "train"]
        subprocess.run(command, env=environment, check=True)


def in_python() -> None:
    """A launcher whose own process is torchrun's agent: what the ranks need is in its environment."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = configuration()
    launcher = {"nv.dl.role": "launcher", "service.instance.id": "launcher"}
    with setup_telemetry(config, resource_attributes=launcher) as handle, span_cm("launch"):
        say(launched=handle.resource_attributes["nemo.run.id"])
        os.environ.update(config.to_env())
        inject_context(os.environ)
        launch = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=4,
            run_id="of-the-rendezvous",
            rdzv_backend="c10d",
            rdzv_endpoint=ENDPOINT,
            local_addr="127.0.0.1",
            start_method="spawn",
        )
        elastic_launch(launch, _train)()


def _train() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import rank

    rank.train()


def two_nodes() -> None:
    """Two agents on one machine, as on two nodes, with two ranks each; the rendezvous' id is common to them."""
    options = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=both-nodes"]
    options += [f"--rdzv-endpoint={ENDPOINT}", "--local-addr=127.0.0.1"]
    nodes = [subprocess.Popen([*TORCHRUN, *options, RANK_PROGRAM, "train"]) for _ in range(2)]
    say(codes=[node.wait() for node in nodes])


if __name__ == "__main__":
    scenario: Callable[..., None] = globals()[sys.argv[1]]
    scenario()
