"""A job over the two nodes of a cluster that is there already."""

from __future__ import annotations

import time

import ray
from common import START, say
from ray.cluster_utils import Cluster

from nemo_lens.api import managed_span, setup_telemetry
from nemo_lens.contrib.ray import flush_actors, instrument_ray, traced_remote_call


@ray.remote(resources={"second": 1})
@traced_remote_call("calls", "far")
def far():
    return ray.get_runtime_context().get_node_id()


@ray.remote(resources={"first": 1}, num_cpus=0)
class Near:
    @traced_remote_call("calls", "near")
    def near(self):
        return [ray.get_runtime_context().get_node_id(), ray.get(far.remote())]


def main():
    store = START["object_store_memory"]
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"first": 1}, "object_store_memory": store}
    )
    cluster.add_node(num_cpus=1, resources={"second": 1}, object_store_memory=store)
    setup_telemetry()
    instrument_ray()
    ray.init(address=cluster.address)
    with managed_span("calls", "driver"):
        actor = Near.remote()
        say(nodes=ray.get(actor.near.remote()))
    flush_actors(actor)
    time.sleep(1)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
