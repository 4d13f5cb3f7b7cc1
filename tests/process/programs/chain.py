"""A launcher that starts a job that starts workers, each a process of its own with nothing said twice.

The first level is configured in code. Every other level calls ``setup_telemetry`` with what only it can know, its name,
and has the rest from the environment.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import common
from common import say
from opentelemetry import baggage

from nemo_lens.api import (
    NemoLensConfig,
    SpanRegistry,
    ensure_run_id,
    get_telemetry,
    inject_context,
    managed_span,
    setup_telemetry,
    span_cm,
)
from nemo_lens.api.carrier import get_otel_resource_attributes, set_otel_resource_attributes


def launcher(next_level: str, awkward: str) -> None:
    """The first process: settings in code, no run id, attributes for everybody; a shell is between it and the job.

    ``awkward`` is text that needs care on the way.
    """
    config = NemoLensConfig.from_env()
    config.enabled, config.span_groups, config.user, config.service_name = True, "all", awkward, "chain"
    with set_up("launcher", config), span_cm("launcher"):
        more = {"nv.dl.world_size": 8, "nv.dl.topology.size.tp": 2, "team": awkward}
        set_otel_resource_attributes({**get_otel_resource_attributes(), **more})
        tell("launcher")
        environment = handed_on(config)
        # What the job's own launcher would name the run after, as sbatch and torchrun do for what they start.
        script = 'export SLURM_JOB_ID=99 TORCHELASTIC_RUN_ID=other; exec "$@"'
        command = ["bash", "-euc", script, "bash", sys.executable, __file__, next_level]
        say(codes=[subprocess.run(command, env=environment, check=False).returncode])


def job() -> None:
    """The second process: it starts one worker in each way there is."""
    config = NemoLensConfig.from_env()
    with set_up("job", config), span_cm("job"):
        tell("job")
        pid = os.fork()
        if pid == 0:
            with span_cm("forked"):
                tell("forked")
            get_telemetry().force_flush()
            os._exit(0)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
        command = [sys.executable, __file__, "worker", "subprocess"]
        codes.append(subprocess.run(command, env=handed_on(config), check=False).returncode)
        os.environ.update(config.to_env())
        inject_context(os.environ)
        for method in ("spawn", "forkserver"):
            child = multiprocessing.get_context(method).Process(target=worker, args=(method,))
            child.start()
            child.join()
            codes.append(child.exitcode)
        say(codes=codes)


def job_without_telemetry() -> None:
    """A second process with telemetry off: it starts its worker as if it were on."""
    config = NemoLensConfig.from_env()
    config.enabled = False
    with set_up("job", config), span_cm("job"):
        environment = {**handed_on(config), "NEMO_LENS_ENABLED": "1"}
        command = [sys.executable, __file__, "worker", "subprocess"]
        say(codes=[subprocess.run(command, env=environment, check=False).returncode])


def worker(name: str) -> None:
    """The third process."""
    with set_up(name), managed_span("work", name):
        tell(name)


def set_up(name: str, config: NemoLensConfig | None = None) -> Any:
    SpanRegistry.register("process", ["work"])
    return setup_telemetry(config, resource_attributes={"service.instance.id": name})


def handed_on(config: NemoLensConfig) -> Mapping[str, str]:
    environment = {**os.environ, **config.to_env()}
    inject_context(environment)
    contexts = [name for name in environment if name.lower() == "traceparent"]
    assert len(contexts) <= 1, contexts
    return environment


def tell(name: str) -> None:
    say(level=name, pid=os.getpid(), run_id=ensure_run_id(), baggage=dict(baggage.get_all()))


if __name__ == "__main__":
    common.main(globals())
