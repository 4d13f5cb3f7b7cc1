"""``nemo-lens doctor`` on settings: where each comes from, what is wrong with it, and what is never shown."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemo_lens.api.config import NemoLensConfig
from support.doctor_run import Run, doctor, install, run_text

CONSOLE = {"NEMO_LENS_EXPORTER": "console"}


def test_every_setting_has_its_origin() -> None:
    """Each field of the configuration is listed with its value, its variables, and the one it was read from."""
    run = doctor(NEMO_LENS_EXPORTER="console", OTEL_SERVICE_NAME="trainer", ENVIRONMENT="prod", NEMO_LENS_USER_ID="jo")
    names = [each["name"] for each in run.report["configuration"]["settings"]]
    assert {field.name for field in dataclasses.fields(NemoLensConfig)} <= set(names)
    assert {"backend", "instrument"} <= set(names)
    origins = {name: (run.setting(name)["value"], run.setting(name)["origin"]) for name in names}
    assert origins["enabled"] == (True, "NEMO_LENS_ENABLED")
    assert origins["service_name"] == ("trainer", "OTEL_SERVICE_NAME")
    assert origins["deployment_environment"] == ("prod", "ENVIRONMENT")
    assert origins["user"] == ("jo", "NEMO_LENS_USER_ID")
    assert origins["shutdown_timeout_ms"] == (5000, "default")
    for name in names:
        setting = run.setting(name)
        assert setting["variables"], name
        assert setting["origin"] in ("default", *setting["variables"])
        assert setting["error"] is None


def test_an_application_with_a_prefix_of_its_own() -> None:
    """Its variables are read under its prefix, and under the fallback what is unset there."""
    variables = {"ACME_EXPORTER": "console", "NEMO_LENS_EXPORTER": "otlp", "NEMO_LENS_ENABLED": "1"}
    run = doctor("--prefix", "ACME", "--fallback-prefix", "NEMO_LENS", **variables)
    assert (run.setting("exporter")["value"], run.setting("exporter")["origin"]) == ("console", "ACME_EXPORTER")
    assert run.setting("enabled")["origin"] == "NEMO_LENS_ENABLED"
    assert run.code == 0


def test_advice_names_the_variables_of_the_prefix() -> None:
    """Who reads the settings under another prefix is told to set variables that are read."""
    variables = {"ACME_ENABLED": "1", "ACME_EXPORTER": "console", "NEMO_LENS_ENABLED": "", "NEMO_LENS_LOGS_ENABLED": ""}
    run = doctor("--prefix", "ACME", OTEL_TRACES_EXPORTER="otlp", **variables)
    assert "NEMO_LENS" not in " ".join(found["remedy"] for found in run.report["findings"])
    assert run.finding("ignored_variable")["remedy"] == "set ACME_EXPORTER, or ACME_TRACES_ENABLED=0 to send none"
    off = doctor("--prefix", "ACME", NEMO_LENS_LOGS_ENABLED="", ACME_EXPORTER="console")
    assert off.finding("telemetry_off")["remedy"].startswith("set ACME_ENABLED=1")


def test_values_that_cannot_be_read() -> None:
    """All of them are reported at once, each with what is accepted, and the rest is examined with defaults."""
    run = doctor(NEMO_LENS_ENABLED="maybe", NEMO_LENS_SHUTDOWN_TIMEOUT_MS="soon", **CONSOLE)
    assert run.code == 1
    messages = " ".join(found["message"] for found in run.findings("bad_setting"))
    assert "NEMO_LENS_ENABLED='maybe': expected 1/0" in messages
    assert "NEMO_LENS_SHUTDOWN_TIMEOUT_MS='soon'" in messages
    assert "maybe" in run.setting("enabled")["error"]
    assert run.setting("shutdown_timeout_ms")["value"] == 5000
    assert set(run.outcomes().values()) == {"console"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OTEL_TRACES_SAMPLER", "allways_on", "did you mean 'always_on'"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "must be a ratio"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "positive integer"),
        ("OTEL_BLRP_MAX_QUEUE_SIZE", "x", "positive integer"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "x", "positive integer"),
        ("OTEL_PROPAGATORS", "tracecontxt", "did you mean 'tracecontext'"),
        ("OTEL_PROPAGATORS", "baggage,", "no propagator '' is installed"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "foo", "accepted: default_tracer_provider, sdk_tracer_provider"),
        ("OTEL_PYTHON_METER_PROVIDER", "foo", "accepted: default_meter_provider, sdk_meter_provider"),
        ("OTEL_PYTHON_LOGGER_PROVIDER", "foo", "accepted: sdk_logger_provider"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "bad", "accepted: trace_based, always_on, always_off"),
        ("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "1", "must be true or false"),
    ],
)
def test_standard_variables_that_set_up_would_refuse(name: str, value: str, says: str) -> None:
    """What setup_telemetry raises for, doctor reports as a problem."""
    run = doctor(**{"OTEL_TRACES_SAMPLER": "traceidratio", **CONSOLE, name: value})
    assert run.code == 1
    (found,) = [found for found in run.findings("bad_setting") if name in found["message"]]
    assert says in found["message"]


@pytest.mark.parametrize("value", ["", " "])
def test_blank_propagators(value: str) -> None:
    """They are unset, for set-up and so for doctor."""
    run = doctor(**CONSOLE, OTEL_PROPAGATORS=value)
    assert (run.code, run.findings("bad_setting"), run.findings("plugin_broken")) == (0, [], [])


def test_a_propagator_that_does_not_load(tmp_path: Path) -> None:
    """An installed one that fails is what set-up would raise for, too."""
    points = "[opentelemetry_propagator]\npigeon = pigeon:Propagator\n"
    install(tmp_path, "pigeon", "raise RuntimeError('no loft')\n", points)
    run = doctor(**CONSOLE, PYTHONPATH=str(tmp_path), OTEL_PROPAGATORS="pigeon")
    assert run.code == 1
    assert "OTEL_PROPAGATORS='pigeon' cannot be used: no loft" in run.finding("bad_setting")["message"]


def test_a_limit_that_keeps_opentelemetry_from_being_imported() -> None:
    """All advice is about the variable: nothing is broken that could be installed anew."""
    run = doctor(**CONSOLE, OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="abc")
    assert (run.code, set(run.problems())) == (1, {"no_backend", "bad_setting"})
    assert run.finding("no_backend")["remedy"] == "correct OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, or unset it"
    remedies = [found["remedy"] for found in run.report["findings"]]
    assert not [remedy for remedy in remedies if "pip install" in remedy or "repair" in remedy]


def test_misspelt_variables() -> None:
    """A name that nearly is a known one is pointed out; others of OpenTelemetry's ecosystem are left alone."""
    run = doctor(
        NEMO_LENS_EXPORTR="x", OTEL_EXPORTER_OTLP_ENDPONT="http://h:1", OTEL_PYTHON_FLASK_EXCLUDED_URLS="x", **CONSOLE
    )
    assert run.code == 0
    messages = [found["message"] for found in run.findings("unknown_variable")]
    assert len(messages) == 2
    assert "NEMO_LENS_EXPORTR" in messages[0]
    assert "NEMO_LENS_EXPORTER" in messages[0]
    assert "OTEL_EXPORTER_OTLP_ENDPONT" in messages[1]
    assert "did you mean OTEL_EXPORTER_OTLP_ENDPOINT" in messages[1]


def test_variables_that_have_no_effect() -> None:
    """OTEL_TRACES_EXPORTER chooses nothing here, which one may learn before wondering for a night."""
    run = doctor(OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="console", **CONSOLE)
    assert run.code == 0
    assert run.finding("ignored_variable")["signals"] == ["traces"]


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "warning"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.0"}, "warning"),
        ({"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-00"}, "warning"),
        ({"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01"}, None),
        ({"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-00", "OTEL_TRACES_SAMPLER": "always_on"}, None),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, None),
        ({"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01", "OTEL_TRACES_SAMPLER": "parentbased_always_off"}, None),
        ({"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01", "OTEL_TRACES_SAMPLER": "always_off"}, "warning"),
        ({"TRACEPARENT": f"00-{'0' * 32}-{'b' * 16}-00"}, None),
    ],
)
def test_spans_that_no_sampler_lets_through(variables: dict[str, str], level: str | None) -> None:
    """A sampler that drops everything, or a parent that is not sampled, is a warning, and a problem without others."""
    run = doctor(**variables, **CONSOLE)
    assert run.code == 0
    assert [found["level"] for found in run.findings("sampled_out")] == ([] if level is None else [level])
    alone = doctor(**variables, **CONSOLE, NEMO_LENS_METRICS_ENABLED="0", NEMO_LENS_LOGS_ENABLED="0")
    assert (alone.code, alone.problems()) == ((0, []) if level is None else (1, ["sampled_out"]))


def test_everything_switched_off() -> None:
    """Three signals off is as good as telemetry off."""
    run = doctor(NEMO_LENS_TRACES_ENABLED="0", NEMO_LENS_METRICS_ENABLED="0", NEMO_LENS_LOGS_ENABLED="0")
    assert (run.code, run.problems()) == (1, ["nothing_exported"])
    assert set(run.outcomes().values()) == {"off"}


def test_records_that_the_root_logger_hides() -> None:
    """With logs on, a hint says that INFO records may be hidden, and the line that shows them; nothing else changes."""
    run = doctor(**CONSOLE)
    hint = run.finding("log_level")
    line = "logging.getLogger().setLevel(logging.INFO)"
    assert (run.code, hint["level"], hint["signals"]) == (0, "ok", ["logs"])
    assert "WARNING" in hint["message"]
    assert line in hint["remedy"]
    assert line in run_text(**CONSOLE).stdout
    assert doctor(**CONSOLE, NEMO_LENS_LOGS_ENABLED="0").findings("log_level") == []


def test_headers_that_are_none() -> None:
    """A part without a name is dropped by the exporters: it is counted, not quoted."""
    run = doctor(OTEL_EXPORTER_OTLP_HEADERS="authorization=a,hunter2hunter2", **CONSOLE)
    assert "part 2 of 2" in run.finding("malformed_header")["message"]
    assert "hunter2" not in run.stdout


@pytest.mark.parametrize(
    "value", ["Authorization: Basic dXNlcjpTRUNSRVRQVw==", "Bad Key=dXNlcjpTRUNSRVRQVw", "x=a;SECRETS"]
)
def test_headers_that_no_exporter_sends(value: str) -> None:
    """What the exporters drop is shown nowhere, not even before its first ``=``, and not said to be sent."""
    with listening_nowhere() as port:
        variables = {
            "OTEL_EXPORTER_OTLP_HEADERS": value,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        run, text = doctor(**variables), run_text(**variables)
    assert "part 1 of 1 is no NAME=VALUE" in run.finding("malformed_header")["message"]
    assert {str(way["headers"]) for way in run.report["endpoints"]} == {"{}"}
    assert "with headers" not in text.stdout
    for shown in (run.stdout, run.stderr, text.stdout, text.stderr):
        assert not any(secret in shown for secret in ("dXNlcjpTRUNSRVRQVw", "SECRET", "Basic", "Bad Key"))


SECRETS = {
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cr3t-general,x-api-key=s3cr3t-key",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Basic%20s3cr3t-traces",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:s3cr3t-password@127.0.0.1:9/otlp?token=s3cr3t-token",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://s3cr3t-user@127.0.0.1:9",
    "OTEL_RESOURCE_ATTRIBUTES": "team.api_key=s3cr3t-attribute,team.name=blue",
    "OTEL_VENDOR_ACCESS_TOKEN": "s3cr3t-access",
    "HTTPS_PROXY": "http://me:s3cr3t-proxy@127.0.0.1:9",
}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_secrets_are_never_shown(protocol: str) -> None:
    """Values of headers, credentials and queries of URLs, secret attributes: in no output and on no stream."""
    variables = {**SECRETS, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    run = doctor(**variables)
    text = run_text(**variables)
    for shown in (run.stdout, run.stderr, text.stdout, text.stderr):
        assert "s3cr3t" not in shown
    listed = {each["name"]: each["value"] for each in run.report["configuration"]["variables"]}
    assert listed["OTEL_EXPORTER_OTLP_HEADERS"] == "authorization=[REDACTED],x-api-key=[REDACTED]"
    assert listed["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://[REDACTED]@127.0.0.1:9/otlp?[REDACTED]"
    assert listed["OTEL_RESOURCE_ATTRIBUTES"] == "team.api_key=[REDACTED],team.name=blue"
    assert run.attribute("team.name") == ("blue", "OTEL_RESOURCE_ATTRIBUTES")


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_RESOURCE_ATTRIBUTES": "token=abc%zzS3CR3T"},
        {"OTEL_RESOURCE_ATTRIBUTES": f"token={'S3CR3T' * 30}%zz"},
        {"OTEL_RESOURCE_ATTRIBUTES": "password=abc,S3CR3T"},
        {"OTEL_RESOURCE_ATTRIBUTES": "url=http://a:S3CR3T@h"},
        {"OTEL_RESOURCE_ATTRIBUTES": "url=http%3A%2F%2Fa%3AS3CR3T%40h%zz"},
        {"OTEL_EXPORTER_OTLP_HEADER": "authorization=Bearer%20S3CR3T"},
        {"http_proxy": "user:S3CR3T@127.0.0.1:9"},
        {"HTTP_PROXY": "user:S3CR3T@127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {"ALL_PROXY": "http://u:S3/CR3T@127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        {"grpc_proxy": "http://u:S3 CR3T@127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "user:S3CR3T@127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:9?api_key=S3CR3T"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:S3/CR3T@127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:S3 CR3T@127.0.0.1:9"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9/x?t=S3@CR3T"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:\\S3'\"CR3T@127.0.0.1:9"},
    ],
    ids=lambda variables: "-".join(f"{name}={value[-24:]}" for name, value in variables.items()),
)
def test_secrets_in_places_that_are_no_url(variables: dict[str, str]) -> None:
    """Addresses without a scheme, passwords that should have been encoded, pairs that are dropped: shown nowhere."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **variables}
    run, text = doctor(**variables), run_text(**variables)
    for shown in (run.stdout, run.stderr, text.stdout, text.stderr):
        assert "S3" not in shown
        assert "CR3T" not in shown


def test_a_secret_that_an_exporter_would_quote() -> None:
    """A header that cannot be sent is quoted by the libraries in full, and by doctor without its value."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=s3cr3t%0Abroken",
    }
    for protocol in ("grpc", "http/protobuf"):
        run = doctor(**variables, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        assert run.code == 1
        assert "s3cr3t" not in run.stdout + run.stderr


def test_span_groups_by_namespace(tmp_path: Path) -> None:
    """What the spec opens of what each library declares; what nothing declares is pending, with the nearest name."""
    code = "GROUPS = {'groups': ['step', 'checkpoint'], 'presets': {'default': ['step']}}\n"
    install(tmp_path, "trainer", code, "[nemo_lens.span_groups]\ntrainer = trainer:GROUPS\n")
    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_SPAN_GROUPS="default, chekpoint", **CONSOLE)
    assert run.code == 0
    assert run.report["span_groups"] == {
        "spec": "default, chekpoint",
        "origin": "NEMO_LENS_SPAN_GROUPS",
        "enabled": ["step"],
        "pending": ["chekpoint"],
        "namespaces": {
            "trainer": {
                "distribution": "trainer 1.2",
                "groups": ["checkpoint", "step"],
                "presets": {"default": ["step"]},
            }
        },
    }
    assert "did you mean 'checkpoint'" in run.finding("span_group_pending")["message"]


def test_no_span_group_is_open(tmp_path: Path) -> None:
    """A spec that opens nothing is a warning that says what there is to open."""
    run = doctor(**CONSOLE)
    assert (run.code, run.finding("no_span_groups")["level"]) == (0, "warning")
    install(tmp_path, "trainer", "GROUPS = {'groups': ['step']}\n", "[nemo_lens.span_groups]\nt = trainer:GROUPS\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert "step, all" in run.finding("no_span_groups")["remedy"]


def test_span_groups_that_are_none(tmp_path: Path) -> None:
    """An entry point that loads and declares nonsense is a warning, once."""
    install(tmp_path, "trainer", "GROUPS = {'groups': ['all']}\n", "[nemo_lens.span_groups]\nt = trainer:GROUPS\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert [found for found in run.findings("plugin_broken") if "trainer 1.2" in found["message"]] == [
        found for found in run.findings("plugin_broken") if "reserved" in found["message"]
    ]
    assert only(run, "trainer 1.2")


def only(run: Run, text: str) -> bool:
    return sum(text in found["message"] for found in run.report["findings"]) == 1


@contextmanager
def listening_nowhere() -> Iterator[int]:
    """Hold a port on which connections are refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
