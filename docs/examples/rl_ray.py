"""Reinforcement learning over Ray, one trace from the driver through the rollout actors to a reward service.

A policy learns which of ten prompts earns the best reward. The driver improves it from the rollouts of two actors, and
the actors ask a web service, a process of its own, what each choice is worth::

    pip install nemo-lens-sdk 'nemo-lens-contrib[ray,fastapi,aiohttp]' numpy uvicorn
    NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file python rl_ray.py
    nemo-lens tree nemo-lens/*/traces-*.jsonl

    train                                   driver
    ├─ step                                 driver
    │  ├─ RolloutWorker.rollout             actor
    │  │  └─ POST                           actor, the client's span
    │  │     └─ POST /score                 service, the server's span
    │  │        └─ score                    service
    │  ├─ RolloutWorker.rollout             ...
    │  └─ update                            driver
    └─ step
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import numpy as np
import ray
import uvicorn
from fastapi import FastAPI

from nemo_lens.api import (
    NemoLensConfig,
    SpanRegistry,
    instrument,
    managed_span,
    safe_set_span_attributes,
    setup_telemetry,
    trace_fn,
)
from nemo_lens.contrib.ray import flush_actors, traced_remote_call

CHOICES = 10
BATCH = 32
STEPS = int(os.environ.get("STEPS", "20"))

# Every process that loads this file knows the groups; ray.init hands them on to the workers as well.
SpanRegistry.register("rl_example", ["train", "rollout", "reward"], {"default": ["train", "rollout", "reward"]})


@ray.remote
class RolloutWorker:
    """Samples choices from the policy and has them scored. Telemetry is set up before the actor is made."""

    def __init__(self, seed: int, url: str) -> None:
        self.random = np.random.default_rng(seed)
        self.url = url
        instrument("aiohttp")

    # Below @ray.remote. The call carries the driver's trace context; Ray still checks the arguments.
    @traced_remote_call("rollout", attributes=lambda self, policy: {"rl.num_rollouts": BATCH})
    async def rollout(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what was chosen and what it earned."""
        choices = self.random.choice(CHOICES, size=BATCH, p=policy)
        async with aiohttp.ClientSession() as session, session.post(self.url, json=choices.tolist()) as answer:
            return choices, np.array(await answer.json())  # the request took the context along, in a header


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of the choices."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@trace_fn("train")
def update(logits: np.ndarray, choices: np.ndarray, rewards: np.ndarray, rate: float = 1.0) -> np.ndarray:
    """Return better logits: REINFORCE with the mean reward as the baseline."""
    gradient = np.zeros_like(logits)
    for choice, advantage in zip(choices, rewards - rewards.mean(), strict=True):
        gradient += advantage * (np.eye(CHOICES)[choice] - softmax(logits))
    return logits + rate * gradient / len(choices)


def train(workers: list) -> list[float]:
    """Return the mean reward of each step."""
    logits, curve = np.zeros(CHOICES), []
    with managed_span("train", "train", attributes={"rl.algorithm": "reinforce"}):
        for iteration in range(STEPS):
            with managed_span("train", "step", attributes={"dl.iteration": iteration}) as span:
                policy = ray.put(softmax(logits))
                rollouts = ray.get([worker.rollout.remote(policy) for worker in workers])
                choices, rewards = (np.concatenate(parts) for parts in zip(*rollouts, strict=True))
                logits = update(logits, choices, rewards)
                safe_set_span_attributes(span, {"rl.reward": float(rewards.mean())})
                curve.append(float(rewards.mean()))
    return curve


def reward_service(listening: socket.socket) -> None:
    """Serve the rewards until SIGTERM."""
    setup_telemetry().install_sigterm_handler()  # uvicorn ends with the signal that it was sent
    app = FastAPI()

    @app.post("/score")
    async def score(choices: list[int]) -> list[float]:
        with managed_span("reward", "score", attributes={"rl.num_rollouts": len(choices)}):
            return [choice / CHOICES for choice in choices]  # the last one is the best

    instrument("fastapi", app)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


@contextmanager
def service_running(config: NemoLensConfig) -> Iterator[str]:
    """Run the service, of the same run and under its own name, and yield its URL. It is stopped whatever happens."""
    environ = {**os.environ, **config.to_env(), "NEMO_LENS_SERVICE_NAME": "reward-service"}
    # A free port, listening from here on: requests wait until the service has started.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, handle = listening.getsockname()[1], listening.fileno()
        service = subprocess.Popen([sys.executable, __file__, "serve", str(handle)], env=environ, pass_fds=[handle])
    try:
        yield f"http://127.0.0.1:{port}/score"
    finally:
        service.terminate()
        service.wait()


def main() -> None:
    """Train, print the rewards, and leave nothing unsent."""
    config = NemoLensConfig.from_env()
    with setup_telemetry(config, resource_attributes={"nv.dl.role": "driver"}), service_running(config) as url:
        instrument("ray", config)  # from here on, ray.init has every worker process set up
        ray.init(num_cpus=2, include_dashboard=False)
        workers = [RolloutWorker.remote(seed, url) for seed in (1, 2)]
        curve = train(workers)
        print(" ".join(f"{reward:.2f}" for reward in curve))
        flush_actors(workers)  # Ray ends its workers without another word
        ray.shutdown()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        reward_service(socket.socket(fileno=int(sys.argv[2])))
    else:
        main()
