"""Jobs over Ray Client, at the server of a cluster that is there already."""

from __future__ import annotations

import os
import time

import client_library
import ray
from common import START, say
from ray.cluster_utils import Cluster

from nemo_lens.api import NemoLensConfig, instrument, managed_span, setup_telemetry, uninstrument
from nemo_lens.contrib.ray import flush_actors, inject_ray_context, ray_dispatch_with_context, ray_runtime_env

PORT = 10001
# Not decorated in place, they are pickled by name, so that workers import the module.
Actor = ray.remote(num_cpus=0)(client_library.Actor)
double, warm = ray.remote(client_library.double), ray.remote(client_library.warm)


def dispatched(name, target, *args):
    with managed_span("calls", name):
        return ray.get(ray_dispatch_with_context(target, *args))


def main():
    head = {"num_cpus": 2, "object_store_memory": START["object_store_memory"], "ray_client_server_port": PORT}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    # Set up in code alone: the environment says nothing.
    config = NemoLensConfig(
        enabled=True, exporter="file", file_path=os.environ["SPANS"], metrics_enabled=False, run_id="of the client"
    )
    setup_telemetry(config)
    instrument("ray")
    with managed_span("calls", "launch"):
        ray.init(f"ray://127.0.0.1:{PORT}")
    instrument("ray")
    say(warm=ray.get(warm.remote()))
    with managed_span("calls", "maker"):
        actor = ray_dispatch_with_context(Actor, 10)
    say(add=dispatched("method", actor.add, 1), options=dispatched("options", actor.add.options(name="x"), 2))
    say(double=dispatched("function", double, 4), plain=dispatched("undecorated", actor.undecorated))
    say(double_options=dispatched("function's options", double.options(num_cpus=0.5), 4))
    with managed_span("calls", "maker, connected"):
        late = ray_dispatch_with_context(ray.remote(num_cpus=0)(client_library.Actor).options(name="late"), 20)
    say(late=dispatched("function, connected", ray.remote(client_library.double), ray.get(late.add.remote(0))))
    with managed_span("calls", "by hand"):
        ray.get(actor.add.remote(3, _lens_carrier=inject_ray_context()))
    with managed_span("calls", "not carried"):
        ray.get(actor.add.remote(4))
    say(
        one=flush_actors(actor, timeout_ms=30_000), list=flush_actors([actor, ray.get_actor("late")], timeout_ms=30_000)
    )
    time.sleep(1)  # the tasks' workers, which nobody can ask, export every 500 ms
    ray.shutdown()
    say(shut=flush_actors(actor))
    uninstrument("ray")

    ray.init(f"ray://127.0.0.1:{PORT}", runtime_env=ray_runtime_env(runtime_env={"env_vars": {"MINE": "1"}}))
    say(hand=ray.get(warm.remote()))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
