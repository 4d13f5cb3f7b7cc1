"""Jobs whose telemetry is switched in different places, one after the other in a cluster that is there already."""

from __future__ import annotations

import os

import ray
from common import START, say
from ray.cluster_utils import Cluster

from nemo_lens.api import (
    NemoLensConfig,
    get_telemetry,
    instrument,
    managed_span,
    set_enabled_span_groups,
    setup_telemetry,
    uninstrument,
)
from nemo_lens.contrib.ray import flush_actors, ray_runtime_env, setup_worker, traced_remote_call


@ray.remote(num_cpus=0)
class Actor:
    @traced_remote_call("calls", "work")
    def work(self, x, **kwargs):
        return [x, sorted(kwargs), get_telemetry().is_exporting]

    def seen(self):
        return {key: os.environ.get(key) for key in ("OWN_HOOK", "TRACEPARENT", "NEMO_LENS_RUN_ID", "A")}

    def set_up_twice(self):
        handle = get_telemetry()
        setup_worker()
        return get_telemetry() is handle


@ray.remote(num_cpus=0, runtime_env={"env_vars": {"HIDE": "1"}})
class Bare:
    def work(self):
        return "works"


def own_hook():
    os.environ["OWN_HOOK"] = "has run"


def job(name, address, runtime_env=None):
    ray.init(address, runtime_env=runtime_env)
    actor = Actor.remote()
    with managed_span("calls", name):
        say(**{name: ray.get(actor.work.remote(1, a=2)), f"{name} seen": ray.get(actor.seen.remote())})
    say(**{f"{name} again": ray.get(actor.set_up_twice.remote()), f"{name} flushed": flush_actors(actor)})
    ray.shutdown()


def main():
    enabled = NemoLensConfig.from_env()
    disabled = NemoLensConfig(enabled=False)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": START["object_store_memory"]}
    )
    address = cluster.address

    # The driver has no telemetry at all, the workers have.
    own = {"worker_process_setup_hook": own_hook, "env_vars": {"A": "b"}}
    job("driver off", address, ray_runtime_env(enabled, own))
    own["worker_process_setup_hook"] = "switching.own_hook"
    job("driver off, hook by name", address, ray_runtime_env(enabled, own))

    with setup_telemetry(enabled):
        job("workers off", address, ray_runtime_env(disabled))
        # Nothing sets them up, whatever the environment says.
        job("no hook", address)
        # The environment of the workers does not stand up: the job must.
        job("bad settings", address, ray_runtime_env(enabled, {"env_vars": {"NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "soon"}}))
        # A hook for a runtime environment that is text.
        text = {"worker_process_setup_hook": "nemo_lens.contrib.ray.setup_worker", "env_vars": enabled.to_env()}
        job("hook as text", address, text)
        # A worker whose Python has no such package.
        ray.init(address, runtime_env=ray_runtime_env(enabled))
        say(bare=ray.get(Bare.remote().work.remote()))
        ray.shutdown()
        # By the entry point, and with the groups off at the driver only.
        instrument("ray")
        with managed_span("calls", "launch"):
            ray.init(address)
        set_enabled_span_groups(())
        actor = Actor.remote()
        with managed_span("calls", "never there"):
            say(gate=ray.get(actor.work.remote(1)), seen=ray.get(actor.seen.remote()))
        say(run_id=enabled.to_env()["NEMO_LENS_RUN_ID"], gate_flushed=flush_actors(actor))
        ray.shutdown()
        uninstrument("ray")
        job("undone", address)
    cluster.shutdown()


if __name__ == "__main__":
    main()
