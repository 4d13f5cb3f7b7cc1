"""Calls of every kind from one driver, to one cluster."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray
from common import START, items, say
from library import Learner

from nemo_lens.api import inject_context, managed_span, setup_telemetry
from nemo_lens.contrib.ray import (
    extract_ray_context,
    flush_actors,
    inject_ray_context,
    ray_dispatch_with_context,
    trace_actor,
    traced_remote_call,
)


@ray.remote
@traced_remote_call("calls", "inner")
def inner(x):
    return x + 1


@ray.remote
@traced_remote_call("calls", "outer", attributes=lambda x: {"x": x})
def outer(x):
    return ray.get(inner.remote(x))


@ray.remote
@traced_remote_call("calls", "stream")
def stream(n):
    for i in range(n):
        with managed_span("calls", "stream item"):
            yield i


@ray.remote
@traced_remote_call("calls", "failing")
def failing():
    raise ValueError("the user's")


@ray.remote
@traced_remote_call("calls", "any keywords")
def any_keywords(**kwargs):
    return sorted(kwargs)


@ray.remote
def undecorated(**kwargs):
    return sorted(kwargs)


@ray.remote
@traced_remote_call("quiet", "quiet")
def quiet(x, **kwargs):
    with managed_span("calls", "inside quiet"):
        return x, sorted(kwargs)


@ray.remote(num_cpus=0)
class Actor:
    @traced_remote_call("calls")
    def __init__(self, start):
        self.start = start

    @traced_remote_call("calls")
    def add(self, x):
        return self.start + x

    @ray.method(num_returns=2)
    @traced_remote_call("calls")
    def two(self):
        return 1, 2

    @traced_remote_call("calls")
    @ray.method(num_returns=2)
    def two_below(self):
        return 3, 4

    @traced_remote_call("calls")
    def stream(self, n):
        for i in range(n):
            with managed_span("calls", "actor item"):
                yield i

    def undecorated(self, **kwargs):
        return sorted(kwargs)

    def calls_itself(self):
        return self.add(1)


@ray.remote(num_cpus=0)
@trace_actor("calls")
class Async:
    async def chain(self, x):
        return await inner.remote(x)

    async def stream(self, n):
        for i in range(n):
            await asyncio.sleep(0.001)
            with managed_span("calls", "async item"):
                yield i

    async def meet(self, key):
        # All of them are in here at once.
        await asyncio.sleep(0.3)
        with managed_span("calls", "met", key=key):
            await asyncio.sleep(0.05)
        return key


@ray.remote(num_cpus=0, max_concurrency=4)
class Threaded:
    def __init__(self):
        self.barrier = threading.Barrier(4)

    @traced_remote_call("calls", "threaded", attributes=lambda self, key: {"key": key})
    def meet(self, key):
        self.barrier.wait(30)
        with managed_span("calls", "in thread", key=key):
            return key


@ray.remote(num_cpus=0, concurrency_groups={"io": 1, "compute": 1})
class Grouped:
    @ray.method(concurrency_group="io")
    @traced_remote_call("calls", "io")
    def io(self):
        return threading.get_ident()

    @traced_remote_call("calls", "compute")
    @ray.method(concurrency_group="compute")
    def compute(self):
        return threading.get_ident()


def rejected(call):
    try:
        call()
    except TypeError as fault:
        return str(fault)
    return None


HOSTILE = {
    "a str": "traceparent",
    "bytes": b"\xff" * 64,
    "a number": 7,
    "a list": ["traceparent"],
    "empty": {},
    "truncated": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71"},
    "padded": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" + " " * 9000},
    "zero ids": {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
    "huge": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "baggage": "a=" + "b" * 100_000},
    "wrong values": {"traceparent": {"a": 1}, "tracestate": 3},
    "odd keys": {1: 2, None: "x"},
    "surrogates": {"traceparent": "\ud800" * 55},
}


def main():
    setup_telemetry()
    ray.init(**START)

    with managed_span("calls", "tasks"):
        say(outer=ray.get(outer.remote(4)), options=ray.get(inner.options(num_cpus=0.5).remote(7)))
        say(task_stream=items(stream.remote(3)))
        say(keywords=ray.get(any_keywords.remote(a=1)), undecorated=ray.get(undecorated.remote(a=1)))
        say(dispatched=ray.get(ray_dispatch_with_context(undecorated, b=1)))
        say(dispatched_options=ray.get(ray_dispatch_with_context(undecorated.options(num_cpus=0.5), b=1)))
        say(dispatched_inner=ray.get(ray_dispatch_with_context(inner.options(num_cpus=0.5), 1)))
        say(quiet=ray.get(quiet.remote(5, a=1)))
        try:
            ray.get(failing.remote())
        except ValueError as fault:
            say(fault=[type(fault).__name__, fault.cause.args[0]])
        carrier = inject_ray_context()
        say(carrier=carrier, same=carrier == dict(inject_context()))
    say(later=ray.get(inner.remote(9, _lens_carrier=carrier)))
    with managed_span("calls", "by hand", context=extract_ray_context(carrier)):
        pass

    with managed_span("calls", "actors"):
        actor = ray_dispatch_with_context(Actor, 10)
        named = ray_dispatch_with_context(Actor.options(name="named"), 20)
        plain = Actor.remote(30)
        say(add=ray.get(actor.add.remote(1)), named=ray.get(ray.get_actor("named").add.remote(1)))
        say(two=ray.get(actor.two.remote()), two_below=ray.get(actor.two_below.remote()))
        say(actor_stream=items(actor.stream.options(num_returns="streaming").remote(3)))
        say(actor_undecorated=ray.get(ray_dispatch_with_context(actor.undecorated, c=1)))
        say(itself=ray.get(actor.calls_itself.remote()))
        asynchronous = Async.remote()
        say(chain=ray.get(asynchronous.chain.remote(3)))
        say(async_stream=items(asynchronous.stream.options(num_returns="streaming").remote(3)))
        learner = Learner.remote()
        say(learner=ray.get([learner.learn.remote(3), learner.learn_later.remote(4)]))
        grouped = Grouped.remote()
        idents = ray.get([grouped.io.remote(), grouped.compute.remote()])
        say(own_threads=len(set(idents)) == 2)

    threaded = Threaded.remote()
    ray.get(threaded.__ray_ready__.remote())

    def ask(actor, key):
        with managed_span("calls", f"caller {key}"):
            return ray.get(actor.meet.remote(key))

    with ThreadPoolExecutor(4) as pool:
        say(threaded=list(pool.map(ask, [threaded] * 4, range(4))))
        say(asynchronous=list(pool.map(ask, [asynchronous] * 4, range(4, 8))))

    say(
        rejected=[
            rejected(lambda: inner.remote()),
            rejected(lambda: inner.remote(1, 2)),
            rejected(lambda: inner.remote(y=1)),
            rejected(lambda: actor.add.remote(y=1)),
            rejected(lambda: ray_dispatch_with_context(actor.add, 1, 2)),
            rejected(lambda: ray_dispatch_with_context(Actor)),
            rejected(lambda: undecorated.remote(1)),
        ]
    )
    with managed_span("calls", "hostile"):
        say(hostile={key: ray.get(inner.remote(0, _lens_carrier=value)) for key, value in HOSTILE.items()})

    before = time.monotonic()
    say(flushed=flush_actors([actor, named, plain, asynchronous, threaded, grouped, learner]), pid=os.getpid())
    say(flush_s=time.monotonic() - before)
    time.sleep(1)  # the tasks' workers, which nobody can ask, export every 500 ms
    ray.shutdown()


if __name__ == "__main__":
    main()
