"""Workers that die: retried tasks, restarted actors, killed actors."""

from __future__ import annotations

import os
import time

import ray
from common import START, say

from nemo_lens.api import get_telemetry, managed_span, setup_telemetry
from nemo_lens.contrib.ray import flush_actors, instrument_ray, traced_remote_call


@ray.remote(max_retries=2, retry_exceptions=True)
@traced_remote_call("calls", "raises once")
def raises_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        raise OSError("the first attempt")
    return "second attempt"


@ray.remote(max_retries=2)
@traced_remote_call("calls", "dies once")
def dies_once(path):
    with managed_span("calls", "attempt"):
        pass
    get_telemetry().force_flush()
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(1)
    return "second attempt"


@ray.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
class Phoenix:
    @traced_remote_call("calls", "burn")
    def burn(self, path):
        with managed_span("calls", "life"):
            pass
        get_telemetry().force_flush()
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return os.getpid()

    @traced_remote_call("calls", "after")
    def after(self):
        return os.getpid()


# By itself it exports after an hour.
_WORKER = {"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_RESOURCE_ATTRIBUTES": "nv.dl.rank=3"}


@ray.remote(num_cpus=0, runtime_env={"env_vars": _WORKER})
class Worker:
    @traced_remote_call("calls", "work", attributes=lambda self, label: {"label": label})
    def work(self, label):
        return label

    def sleep(self, seconds):
        time.sleep(seconds)


@ray.remote(num_cpus=0, max_pending_calls=1)
class Full:
    def sleep(self, seconds):
        time.sleep(seconds)


def main():
    folder = os.environ["FOLDER"]
    setup_telemetry()
    instrument_ray()
    ray.init(**START)
    with managed_span("calls", "driver"):
        say(raises_once=ray.get(raises_once.remote(f"{folder}/raised")))
        say(dies_once=ray.get(dies_once.remote(f"{folder}/died")))
        phoenix = Phoenix.remote()
        say(burn=ray.get(phoenix.burn.remote(f"{folder}/burned")), after=ray.get(phoenix.after.remote()))
        workers = {name: Worker.remote() for name in ("flushed", "unflushed", "busy", "ended", "left")}
        calls = []
        for name, worker in workers.items():
            calls.append(worker.work.remote(name))
        say(worked=ray.get(calls))

    say(flushed=flush_actors(workers["flushed"]), phoenix=flush_actors([phoenix]), nobody=flush_actors([]))
    for name in ("flushed", "unflushed"):
        ray.kill(workers[name])
    time.sleep(0.5)
    workers["ended"].__ray_terminate__.remote()
    del workers["left"], worker
    started = time.monotonic()
    say(dead=flush_actors(workers["flushed"], timeout_ms=20_000), dead_s=time.monotonic() - started)
    workers["busy"].sleep.remote(30)
    started = time.monotonic()
    say(busy=flush_actors([workers["busy"], phoenix], timeout_ms=700), busy_s=time.monotonic() - started)
    full = Full.remote()
    full.sleep.remote(30)
    say(full=flush_actors([full, 5, phoenix], timeout_ms=20_001))
    time.sleep(1.5)  # the tasks' workers, which nobody can ask, export every 500 ms
    ray.shutdown()
    say(after_shutdown=flush_actors([phoenix]), nobody_then=flush_actors([]), started=ray.is_initialized())


if __name__ == "__main__":
    main()
