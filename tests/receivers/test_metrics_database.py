"""Metrics in a real database, asked back by PromQL under the names that Prometheus gives them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nemo_lens.api.instruments import inference
from support.all_signals import SENDER, clean_environ
from support.programs.every_kind import BUCKETS
from support.victoria_metrics import VictoriaMetrics

pytestmark = pytest.mark.timeout(300)  # the first test may have to fetch the database
_PROGRAM = SENDER.parent / "measure_run.py"
_LOSSY = SENDER.parent / "self_metrics.py"
_REQUESTS = 2500
_EXPONENTIAL = {"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"}


def measure(database: VictoriaMetrics, run_id: str, rank: int = 0, environ: Mapping[str, str] | None = None) -> None:
    """Run one rank that measures and exports to the database."""
    run = subprocess.run(
        [sys.executable, "-W", "error", str(_PROGRAM), run_id, str(rank), str(_REQUESTS)],
        env=clean_environ({**database.environ(), **(environ or {})}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"confirmed": [True, True]}, run.stderr


@pytest.fixture(scope="module")
def ranks(database: VictoriaMetrics) -> VictoriaMetrics:
    """Give the database once two ranks of the run ``ranks`` have measured, the second one compressing what it sends."""
    measure(database, "ranks", 0)
    measure(database, "ranks", 1, database.environ("gzip"))
    database.wait_for('sum(own_steps_total{nemo_run_id="ranks"})', 10)
    return database


def of_rank(metric: str, rank: int = 0, matchers: str = "") -> str:
    """Return the selector of a rank's metric."""
    return f'{metric}{{nemo_run_id="ranks",nv_dl_rank="{rank}"{matchers}}}'


def test_each_kind_holds_what_was_recorded(ranks: VictoriaMetrics) -> None:
    """Gauge, counter, up-down counter and the three observable kinds hold the recorded value, under name and unit."""
    for metric, value in {
        "kinds_queue_depth": 4,
        "kinds_samples_total": 11,
        "kinds_workers": 2,
        "kinds_read_bytes_total": 2500,
        "kinds_open_files": 7,
        "own_steps_total": 5,
    }.items():
        for rank in (0, 1):
            assert ranks.value(of_rank(metric, rank)) == value, metric
    assert ranks.by("gpu", of_rank("kinds_temperature_celsius")) == {"0": 41.5, "1": 43}
    (labels, _), *others = ranks.query(of_rank("kinds_samples_total"))
    assert (labels["phase"], others) == ("train", [])


def test_a_histogram_has_its_buckets(ranks: VictoriaMetrics) -> None:
    """A histogram holds count and sum, and its buckets are those of the advice."""
    assert ranks.value(of_rank("kinds_step_duration_seconds_count")) == 3
    assert ranks.value(of_rank("kinds_step_duration_seconds_sum")) == 6
    expected = {**{f"{bound:g}": number for number, bound in enumerate(BUCKETS, 1)}, "+Inf": 3}
    assert ranks.by("le", of_rank("kinds_step_duration_seconds_bucket")) == expected
    middle = ranks.value(f"histogram_quantile(0.5, {of_rank('kinds_step_duration_seconds_bucket')})")
    assert 1 < middle <= 2


def test_counters_of_several_exports_and_ranks_add_up(ranks: VictoriaMetrics) -> None:
    """What was counted before and after an export is one increase, and the ranks of a run are told apart and add up."""
    assert ranks.by("nv_dl_rank", 'increase(kinds_samples_total{nemo_run_id="ranks"}[5m])') == {"0": 11, "1": 11}
    assert ranks.value('sum(increase(own_steps_total{nemo_run_id="ranks"}[5m]))') == 10
    assert ranks.value(f"count_over_time({of_rank('own_steps_total')}[5m])") >= 2


def test_the_resource_tells_whose_they_are(ranks: VictoriaMetrics) -> None:
    """Every series has the service, run, rank, process and instance, and the caller's attributes, as labels."""
    found = ranks.query('{nemo_run_id="ranks"}')
    assert len(found) > 100
    for labels, _ in found:
        rank = labels["nv_dl_rank"]
        assert labels["service_name"] == "measured-run"
        assert labels["service_instance_id"] == f"ranks-rank{rank}"
        assert labels["team"] == "größe"
        assert labels["host_name"]
    assert len({labels["process_pid"] for labels, _ in found}) == 2


def test_the_shipped_groups(ranks: VictoriaMetrics) -> None:
    """The groups training, rl and gym hold the last value of each gauge, and the sums of counters and histograms."""
    for metric, value in {
        "dl_training_loss_ratio": 2.25,
        "dl_training_memory_allocated_bytes": 2**34,
        "dl_training_skipped_iterations_total": 1,
        "dl_training_step_duration_seconds_count": 2,
        "dl_training_step_duration_seconds_sum": 1.25,
        "dl_training_throughput_tflops_per_second": 310.5,
        "rl_reward_mean_ratio": 0.5,
        "rl_kl_divergence_ratio": 0.01,
        "rl_response_length_mean": 512,
        "rl_rollout_duration_ms_milliseconds_sum": 1500,
        "gym_verify_duration_ms_milliseconds_sum": 12,
        "gym_verify_success_rate_ratio": 0.75,
        "gym_servers_active": 3,
    }.items():
        assert ranks.value(of_rank(metric)) == value, metric


def test_inference_has_the_buckets_of_the_genai_conventions(ranks: VictoriaMetrics) -> None:
    """Each ``gen_ai.*`` histogram has the attributes of the conventions, and buckets at the bounds they advise."""
    recorded = {
        "gen_ai.server.request.duration": ("gen_ai_server_request_duration_seconds", 0.3),
        "gen_ai.server.time_to_first_token": ("gen_ai_server_time_to_first_token_seconds", 0.03),
        "gen_ai.server.time_per_output_token": ("gen_ai_server_time_per_output_token_seconds", 0.012),
        "gen_ai.client.token.usage": ("gen_ai_client_token_usage", 100),
    }
    advice = {spec.name: spec.buckets for spec in inference.SPECS}
    assert advice.keys() == recorded.keys()
    for name, (metric, value) in recorded.items():
        matchers = ',gen_ai_operation_name="chat",gen_ai_provider_name="nim",gen_ai_request_model="llama"'
        if name == "gen_ai.client.token.usage":
            matchers += ',gen_ai_token_type="input"'
        assert ranks.value(of_rank(f"{metric}_sum", matchers=matchers)) == value
        assert ranks.value(of_rank(f"{metric}_count", matchers=matchers)) == 1
        buckets = ranks.by("le", of_rank(f"{metric}_bucket", matchers=matchers))
        bounds = advice[name] or ()
        assert {float(bound): count for bound, count in buckets.items()} == {
            **{float(bound): float(value <= bound) for bound in bounds},
            float("inf"): 1,
        }
    tokens = ranks.by("gen_ai_token_type", of_rank("gen_ai_client_token_usage_sum"))
    assert tokens == {"input": 100, "output": 20}


def test_the_overflow_series_keeps_the_total(ranks: VictoriaMetrics) -> None:
    """More attribute sets than are kept: 2000 series, the rest counted in one that says so, and the total right."""
    served = of_rank("requests_served_total")
    overflow = of_rank("requests_served_total", matchers=',otel_metric_overflow="true"')
    assert ranks.value(f"sum({served})") == _REQUESTS
    assert ranks.value(f"count({served})") == 2000
    assert ranks.value(overflow) == _REQUESTS - 1999


def test_exponential_histograms(database: VictoriaMetrics) -> None:
    """With exponential histograms by the standard variable, bounds come from the data: advice is left aside."""
    measure(database, "exponential", environ=_EXPONENTIAL)
    database.wait_for('own_steps_total{nemo_run_id="exponential"}', 5)
    assert database.value('kinds_step_duration_seconds_count{nemo_run_id="exponential"}') == 3
    assert database.value('kinds_step_duration_seconds_sum{nemo_run_id="exponential"}') == 6
    ranges = database.by("vmrange", 'kinds_step_duration_seconds_bucket{nemo_run_id="exponential"}')
    assert sum(ranges.values()) == 3
    for seconds in (0.5, 1.5, 4.0):  # each between two bounds within a thousandth
        assert any(low * 0.999 <= seconds <= high * 1.001 for low, high in (_range(text) for text in ranges))


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition("...")
    return float(low), float(high)


def test_this_database_wants_cumulative_sums(database: VictoriaMetrics) -> None:
    """With delta temporality it confirms and stores no counter or histogram: gauges and up-down counters alone."""
    environ = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
    measure(database, "delta", environ=environ)
    database.wait_for('kinds_workers{nemo_run_id="delta"}', 2)
    assert database.value('kinds_queue_depth{nemo_run_id="delta"}') == 4
    assert database.value('kinds_open_files{nemo_run_id="delta"}') == 7
    for lost in ("kinds_samples_total", "kinds_step_duration_seconds_count", "kinds_read_bytes_total"):
        assert database.query(f'{lost}{{nemo_run_id="delta"}}') == []


@pytest.fixture(scope="module")
def lossy(database: VictoriaMetrics) -> VictoriaMetrics:
    """Give the database once a process has dropped five spans and failed to export four."""
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4", "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    run = subprocess.run(
        [sys.executable, "-W", "error", str(_LOSSY), "lossy"],
        env=clean_environ({**database.environ(), **small}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    database.wait_for('otel_sdk_exporter_span_exported_total{nemo_run_id="self",error_type="ConnectionResetError"}', 4)
    return database


def test_drops_and_failed_exports_are_found_by_their_names(lossy: VictoriaMetrics) -> None:
    """A dashboard asks for what was lost, by why, and for what arrived, under the names of the conventions."""
    processed = lossy.by("error_type", 'otel_sdk_processor_span_processed_total{nemo_run_id="self"}')
    assert processed == {"": 8, "queue_full": 5}
    exported = lossy.by("error_type", 'otel_sdk_exporter_span_exported_total{nemo_run_id="self"}')
    assert exported == {"": 4, "_OTHER": 0, "ConnectionResetError": 4}
    lost = 'sum(otel_sdk_exporter_span_exported_total{nemo_run_id="self",error_type!=""})'
    assert lossy.value(lost) == 4
    for waiting in ("otel_sdk_processor_span_queue_size", "otel_sdk_exporter_span_inflight"):
        assert lossy.value(f'{waiting}{{nemo_run_id="self"}}') == 0
    ((labels, _),) = lossy.query('otel_sdk_processor_span_queue_capacity{nemo_run_id="self"}')
    assert labels["otel_component_type"] == "nemo_lens.sdk.processor.LensSpanProcessor"
    assert labels["otel_component_name"] == "nemo_lens.sdk.processor.LensSpanProcessor/0"


def test_the_queries_of_the_guide_find_the_losses(lossy: VictoriaMetrics) -> None:
    """The queries that the guide gives for a dashboard run as they stand and find what that process lost."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = page.split("## Is the telemetry itself healthy")[1].split("\n## ")[0]
    queries = dict(re.findall(r"^\| ([^|`]+) \| `([^`]*\(.+)` \|$", section, flags=re.M))
    assert len(queries) == 4
    for question, query in queries.items():
        found = lossy.query(query)
        assert found, f"{question}: {query}"
        assert all(value >= 0 for _, value in found)
