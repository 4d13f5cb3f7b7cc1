"""A job with Ray's own tracing on, whose spans go where ours go."""

from __future__ import annotations

import time

import ray
from common import START, say

from nemo_lens.api import managed_span, setup_telemetry
from nemo_lens.contrib.ray import flush_actors, instrument_ray, traced_remote_call


def startup_hook():
    """Leave the provider to Lens."""


@ray.remote
@traced_remote_call("calls", "task")
def task(x):
    with managed_span("calls", "in task"):
        return x


@ray.remote(num_cpus=0)
class Actor:
    @traced_remote_call("calls", "method")
    def method(self, x):
        with managed_span("calls", "in method"):
            return x

    @traced_remote_call("calls", "coroutine")
    async def coroutine(self, x):
        with managed_span("calls", "in coroutine"):
            return x


def main():
    setup_telemetry()
    instrument_ray()
    ray.init(**START, _tracing_startup_hook="own_tracing:startup_hook")
    with managed_span("calls", "driver"):
        actor = Actor.remote()
        say(results=ray.get([task.remote(1), actor.method.remote(2), actor.coroutine.remote(3)]))
    flush_actors(actor)
    time.sleep(1)
    ray.shutdown()


if __name__ == "__main__":
    main()
