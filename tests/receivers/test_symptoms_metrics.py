"""A symptom of the troubleshooting page that needs a real metrics database."""

from __future__ import annotations

from pathlib import Path

from support.symptoms import Lab, Symptom, symptom
from support.victoria_metrics import VictoriaMetrics

RUN = """
from nemo_lens.api import get_meter, setup_telemetry
from nemo_lens.api.instruments import record_training_metrics
telemetry = setup_telemetry(resource_attributes={"nv.dl.rank": 3})
for number in range(4):
    record_training_metrics(get_meter("mytrainer"), loss=2.5, step_duration_s=0.25, skipped_iterations=1)
    telemetry.force_flush()
telemetry.shutdown()
"""


@symptom("A metric is not found in Prometheus or VictoriaMetrics")
def test_names_and_temporality(database: VictoriaMetrics, case: Symptom, tmp_path: Path) -> None:
    """The names of the page find the metrics, by rank; sums sent as deltas are left out, and as advised are there."""
    lab = Lab(tmp_path)
    environ = {"NEMO_LENS_EXPORTER": "otlp", "NEMO_LENS_METRICS_ENABLED": "1", "NEMO_LENS_TRACES_ENABLED": "0"}
    environ |= database.environ()
    delta = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
    lab.run(RUN, **environ, **delta, NEMO_LENS_SERVICE_NAME="with-delta")
    ended = lab.run(RUN, **environ, **delta, NEMO_LENS_SERVICE_NAME="cumulative", cure=case.cure())
    assert (ended.code, ended.err.count("dropped")) == (0, 0)
    ours = '{service_name="cumulative",nv_dl_rank="3"}'
    database.wait_for(f"dl_training_skipped_iterations_total{ours}", 4)
    database.wait_for(f"dl_training_loss_ratio{ours}", 2.5)
    database.wait_for(f"dl_training_step_duration_seconds_count{ours}", 4)
    assert database.query(f"dl_training_step_duration_seconds_bucket{ours}")
    theirs = '{service_name="with-delta"}'
    database.wait_for(f"dl_training_loss_ratio{theirs}", 2.5)
    assert database.query(f"dl_training_skipped_iterations_total{theirs}") == []
    assert database.query(f"dl_training_step_duration_seconds_count{theirs}") == []
