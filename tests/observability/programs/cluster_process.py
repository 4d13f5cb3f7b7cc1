"""A process of a small cluster, which measures itself and says at its end how often it did what.

usage: cluster_process.py ROLE RUN_ID RANK WORLD_SIZE END WORK_S

ROLE is ``train``, ``rl``, ``serve`` or ``lossy``; RANK is ``-`` for none. It works until END, in seconds since the
epoch, and each step or request takes it WORK_S.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from nemo_lens.api import NemoLensConfig, SpanRegistry, managed_span, setup_telemetry
from nemo_lens.api.instruments import (
    record_gym_metrics,
    record_inference_metrics,
    record_rl_metrics,
    record_training_metrics,
)

Counts = Counter[str]
LOSS, REWARD, SUCCESS_RATE, SERVERS = 2.5, 0.5, 0.75, 3
TOKENS_PER_SECOND, TFLOPS = 1000.0, 300.0
MODELS = ("llama", "nemotron")
INPUT_TOKENS, OUTPUT_TOKENS = 500, 50
# Of the requests to each model one in four fails.
FAILS_EVERY = 4
SPANS_OF_A_BURST = 40
_log = logging.getLogger("cluster")


def main(role: str, run_id: str, rank: str, world_size: str, end: str, work_s: str) -> None:
    """Set telemetry up, work, shut down, and print the counts."""
    SpanRegistry.register("cluster", {"step"})
    config = NemoLensConfig(
        enabled=True, service_name=role, run_id=run_id, span_groups="all", logs_enabled=True, exporter="otlp"
    )
    attributes: dict[str, Any] = {"nv.dl.rank": int(rank), "nv.dl.world_size": int(world_size)} if rank != "-" else {}
    handle = setup_telemetry(config, resource_attributes=attributes)
    counts: Counts = Counter()
    began = time.monotonic()
    steps = {"train": train, "rl": reinforce, "serve": serve, "lossy": lose}[role](handle.meter, float(work_s), counts)
    # On a busy machine it may have started late, and is to be seen all the same.
    until = max(float(end), time.time() + 1.5)
    while time.time() < until:
        next(steps)
    counts["seconds"] = round(time.monotonic() - began)
    handle.shutdown(3000)
    json.dump(counts, sys.stdout)


def train(meter: Any, work_s: float, counts: Counts) -> Iterator[None]:
    """Make steps of this length; every fifth is skipped."""
    while True:
        began = time.perf_counter()
        with managed_span("step", "train.step"):
            time.sleep(work_s)
            counts["steps"] += 1
            skipped = int(counts["steps"] % 5 == 0)
            counts["skipped"] += skipped
            _log.warning("step %d", counts["steps"])
            record_training_metrics(
                meter,
                step_duration_s=time.perf_counter() - began,
                loss=LOSS,
                learning_rate=3e-4,
                grad_norm=0.8,
                tokens_per_sec=TOKENS_PER_SECOND,
                samples_per_sec=4,
                tflops=TFLOPS,
                memory_allocated_bytes=2**34,
                skipped_iterations=skipped,
            )
        yield


def reinforce(meter: Any, work_s: float, counts: Counts) -> Iterator[None]:
    """Generate for half of each rollout, verify for the other half."""
    while True:
        began = time.perf_counter()
        with managed_span("step", "rollout"):
            time.sleep(work_s / 2)
            generated = time.perf_counter()
            time.sleep(work_s / 2)
        ended = time.perf_counter()
        counts["rollouts"] += 1
        _log.warning("rollout %d", counts["rollouts"])
        record_rl_metrics(
            meter,
            reward_mean=REWARD,
            kl_divergence=0.01,
            policy_loss=-0.02,
            value_loss=0.3,
            entropy=1.2,
            grad_norm=0.4,
            learning_rate=1e-6,
            response_length_mean=OUTPUT_TOKENS,
            throughput_tokens_per_sec=TOKENS_PER_SECOND,
            generation_duration_ms=(generated - began) * 1000,
            rollout_duration_ms=(ended - began) * 1000,
        )
        for server, factor in (("math-0", 1), ("math-1", 2)):
            duration_ms = (ended - generated) * 1000 * factor
            record_gym_metrics(meter, server_request_duration_ms=duration_ms, attributes={"gym.server.name": server})
        record_gym_metrics(
            meter,
            rollout_duration_ms=(ended - began) * 1000,
            verify_duration_ms=(ended - generated) * 1000,
            verify_success_rate=SUCCESS_RATE,
            active_servers=SERVERS,
        )
        yield


def serve(meter: Any, work_s: float, counts: Counts) -> Iterator[None]:
    """Answer requests, to two models by turns."""
    while True:
        began = time.perf_counter()
        time.sleep(work_s)
        model = MODELS[counts["requests"] % len(MODELS)]
        counts["requests"] += 1
        counts[model] += 1
        failed = counts[model] % FAILS_EVERY == 0
        counts["failed"] += failed
        record_inference_metrics(
            meter,
            request_duration_s=time.perf_counter() - began,
            time_to_first_token_s=work_s / 2,
            time_per_output_token_s=work_s / 2 / OUTPUT_TOKENS,
            model=model,
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            provider_name="vllm",
            operation_name="chat" if counts["requests"] % 3 else "text_completion",
            attributes={"error.type": "timeout"} if failed else None,
        )
        yield


def lose(_meter: Any, work_s: float, counts: Counts) -> Iterator[None]:
    """Begin more spans and write more log records than the queues take and the receiver confirms."""
    while True:
        for _ in range(SPANS_OF_A_BURST):
            with managed_span("step", "burst"):
                counts["spans"] += 1
            _log.warning("burst")
            counts["records"] += 1
        time.sleep(work_s)
        yield


if __name__ == "__main__":
    main(*sys.argv[1:])
