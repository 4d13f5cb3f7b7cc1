"""A rank of a job that measures: each kind of metric, the shipped groups, more attribute sets than are kept.

usage: measure_run.py RUN_ID RANK REQUESTS
"""

from __future__ import annotations

import json
import sys
import time

from every_kind import ATTRIBUTES, GROUP, record_every_kind

from nemo_lens.api import NemoLensConfig, setup_telemetry
from nemo_lens.api.instruments import (
    MetricSpec,
    record_gym_metrics,
    record_inference_metrics,
    record_metrics,
    record_rl_metrics,
    record_training_metrics,
    register_metric_group,
)


def main(run_id: str, rank: str, requests: str) -> None:
    """Measure, export, measure on, shut down; print which exports were confirmed."""
    config = NemoLensConfig(
        enabled=True, service_name="measured-run", run_id=run_id, exporter="otlp", traces_enabled=False, span_groups=""
    )
    handle = setup_telemetry(config, resource_attributes={"nv.dl.rank": int(rank), "team": "größe"})
    meter = handle.meter
    record_every_kind(meter)
    record_training_metrics(meter, step_duration_s=0.75, loss=2.5, tokens_per_sec=1200, tflops=310.5)
    record_training_metrics(meter, step_duration_s=0.5, loss=2.25, memory_allocated_bytes=2**34, skipped_iterations=1)
    record_inference_metrics(
        meter,
        request_duration_s=0.3,
        time_to_first_token_s=0.03,
        time_per_output_token_s=0.012,
        model="llama",
        input_tokens=100,
        output_tokens=20,
        provider_name="nim",
        operation_name="chat",
    )
    record_rl_metrics(meter, reward_mean=0.5, kl_divergence=0.01, response_length_mean=512, rollout_duration_ms=1500)
    record_gym_metrics(meter, verify_duration_ms=12, verify_success_rate=0.75, active_servers=3)
    register_metric_group("requests", [MetricSpec("served", "requests.served", "counter", "{request}")])
    for number in range(int(requests)):
        record_metrics(meter, "requests", served=1, attributes={"request.id": number})
    own = meter.create_counter("own.steps", "{step}", "Steps, counted by an instrument of the job's own")
    own.add(2)
    confirmed = [handle.force_flush(10_000)]
    time.sleep(0.05)  # a database keeps one value a millisecond
    record_metrics(meter, GROUP, attributes=ATTRIBUTES, samples=6)
    own.add(3)
    confirmed.append(handle.force_flush(10_000))
    handle.shutdown(10_000)
    json.dump({"confirmed": confirmed}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
