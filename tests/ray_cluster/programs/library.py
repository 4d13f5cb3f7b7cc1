"""A library with a remote function and an actor class: what workers import rather than get by value."""

from __future__ import annotations

import ray

from nemo_lens.contrib.ray import traced_remote_call


@ray.remote
@traced_remote_call("calls", "library function")
def square(x):
    return x * x


@ray.remote(num_cpus=0)
class Learner:
    @traced_remote_call("calls")
    def learn(self, x):
        return ray.get(square.remote(x))

    @traced_remote_call("calls")
    async def learn_later(self, x):
        return await square.remote(x)
