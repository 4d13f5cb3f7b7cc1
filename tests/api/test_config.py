"""NemoLensConfig: defaults, environment, errors that name the variable, and the way to a spawned worker."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.identity import ensure_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULTS = {
    "enabled": False,
    "service_name": None,
    "traces_enabled": True,
    "metrics_enabled": True,
    "logs_enabled": False,
    "span_groups": "default",
    "exporter": "otlp",
    "file_path": "",
    "run_id": "",
    "user": "",
    "wandb_entity": "",
    "wandb_project": "",
    "deployment_environment": "",
    "shutdown_timeout_ms": 5000,
    "single_trace": False,
}

# Variable, text, field, value.
READINGS = [
    ("NEMO_LENS_ENABLED", "1", "enabled", True),
    ("NEMO_LENS_SERVICE_NAME", "trainer", "service_name", "trainer"),
    ("OTEL_SERVICE_NAME", "trainer", "service_name", "trainer"),
    ("NEMO_LENS_TRACES_ENABLED", "off", "traces_enabled", False),
    ("NEMO_LENS_METRICS_ENABLED", "No", "metrics_enabled", False),
    ("NEMO_LENS_LOGS_ENABLED", "YES", "logs_enabled", True),
    ("NEMO_LENS_SPAN_GROUPS", " io,train ", "span_groups", "io,train"),
    ("NEMO_LENS_SPAN_GROUPS", " , ", "span_groups", ""),
    ("NEMO_LENS_EXPORTER", "console", "exporter", "console"),
    ("NEMO_LENS_FILE_PATH", "/data/{rank}.jsonl", "file_path", "/data/{rank}.jsonl"),
    ("NEMO_LENS_RUN_ID", "r1", "run_id", "r1"),
    ("NEMO_LENS_USER_ID", "ada", "user", "ada"),
    ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", " 250 ", "shutdown_timeout_ms", 250),
    ("NEMO_LENS_SINGLE_TRACE", "on", "single_trace", True),
    ("WANDB_ENTITY", "team", "wandb_entity", "team"),
    ("WANDB_PROJECT", "llm", "wandb_project", "llm"),
    ("DEPLOYMENT_ENV", "prod", "deployment_environment", "prod"),
    ("ENVIRONMENT", "dev", "deployment_environment", "dev"),
]


@pytest.fixture(autouse=True)
def _nothing_reported() -> Iterator[None]:
    _diagnostics.forget_reported()
    yield
    _diagnostics.forget_reported()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_fields_and_defaults() -> None:
    """The fields and their defaults are the documented ones, and an empty environment gives just them."""
    assert dataclasses.asdict(NemoLensConfig()) == DEFAULTS
    assert NemoLensConfig.from_env(environ={}) == NemoLensConfig()
    assert set(NemoLensConfig().sources.values()) == {"default"}


@pytest.mark.parametrize(("variable", "text", "field", "value"), READINGS)
def test_each_variable_sets_its_field(variable: str, text: str, field: str, value: object) -> None:
    """Each variable sets one field, and ``sources`` remembers which variable it was."""
    config = NemoLensConfig.from_env(environ={variable: text})
    assert dataclasses.asdict(config) == {**DEFAULTS, field: value}
    assert {name: source for name, source in config.sources.items() if source != "default"} == {field: variable}


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``environ`` the variables are those of the process."""
    monkeypatch.setenv("NEMO_LENS_RUN_ID", "from the process")
    assert NemoLensConfig.from_env().run_id == "from the process"


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
@pytest.mark.parametrize("variable", [row[0] for row in READINGS])
def test_blank_counts_as_unset(variable: str, blank: str) -> None:
    """A blank variable leaves the default and is no source."""
    config = NemoLensConfig.from_env(environ={variable: blank})
    assert config == NemoLensConfig()
    assert set(config.sources.values()) == {"default"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"MY_SERVICE_NAME": "a", "NEMO_LENS_SERVICE_NAME": "b", "OTEL_SERVICE_NAME": "c"}, "a"),
        ({"MY_SERVICE_NAME": " ", "NEMO_LENS_SERVICE_NAME": "b", "OTEL_SERVICE_NAME": "c"}, "b"),
        ({"OTEL_SERVICE_NAME": "c"}, "c"),
        ({}, None),
    ],
)
def test_prefix_then_fallback_then_bare(environ: dict[str, str], expected: str | None) -> None:
    """The prefix is read first, then the fallback prefix, then the variable without a prefix."""
    assert NemoLensConfig.from_env("MY", "NEMO_LENS", environ=environ).service_name == expected


def test_deployment_env_is_read_before_environment() -> None:
    """DEPLOYMENT_ENV wins over ENVIRONMENT."""
    config = NemoLensConfig.from_env(environ={"ENVIRONMENT": "dev", "DEPLOYMENT_ENV": "prod"})
    assert config.deployment_environment == "prod"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ENVIRONMENT": "BATCH", "SLURM_JOB_ID": "7"}, ""),
        ({"ENVIRONMENT": "BATCH", "SLURM_JOB_ID": "7", "DEPLOYMENT_ENV": "prod"}, "prod"),
        ({"ENVIRONMENT": "staging", "SLURM_JOB_ID": "7"}, "staging"),
        ({"ENVIRONMENT": "BATCH"}, "BATCH"),
    ],
)
def test_the_environment_that_sbatch_sets_is_no_deployment(environ: dict[str, str], expected: str) -> None:
    """SLURM sets ENVIRONMENT=BATCH in each batch job: that is not read; what a person set there is."""
    assert NemoLensConfig.from_env(environ=environ).deployment_environment == expected


@pytest.mark.parametrize("prefix", ["", " ", "_"])
def test_a_blank_prefix_is_refused(prefix: str) -> None:
    """A prefix that is nothing would read every variable: ValueError."""
    with pytest.raises(ValueError, match="prefix="):
        NemoLensConfig.from_env(prefix, environ={})
    with pytest.raises(ValueError, match="prefix="):
        NemoLensConfig().to_env(prefix)


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("NEMO_LENS_ENABLED", "ture", ["true/false", "yes/no", "did you mean 'true'?"]),
        ("NEMO_LENS_TRACES_ENABLED", "2", ["1/0", "on/off"]),
        ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", "5s", ["milliseconds from 0 to 86400000"]),
        ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", "-1", ["milliseconds from 0"]),
        ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", "1.5", ["milliseconds from 0"]),
        ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", "86400001", ["to 86400000"]),
        ("NEMO_LENS_SHUTDOWN_TIMEOUT_MS", "9" * 5000, ["to 86400000"]),
    ],
)
def test_a_bad_value_names_its_variable(variable: str, text: str, says: list[str]) -> None:
    """The ValueError begins with the variable it was read from, holds the value and says what is accepted."""
    with pytest.raises(ValueError, match="expected") as caught:
        NemoLensConfig.from_env(environ={variable: text})
    message = str(caught.value)
    assert message.startswith(f"{variable}=")
    assert text in message
    for part in says:
        assert part in message


def test_a_bad_value_of_the_fallback_names_the_fallback() -> None:
    """The variable in the message is the one that was read, not the one that was unset."""
    with pytest.raises(ValueError, match=r"^NEMO_LENS_SINGLE_TRACE='perhaps'"):
        NemoLensConfig.from_env("MY", "NEMO_LENS", environ={"NEMO_LENS_SINGLE_TRACE": "perhaps"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enabled", "true"),
        ("enabled", 1),
        ("single_trace", None),
        ("service_name", 5),
        ("span_groups", ["a", "b"]),
        ("exporter", ""),
        ("exporter", None),
        ("file_path", None),
        ("run_id", 7),
        ("run_id", "nul\0"),
        ("user", "\ud800"),
        ("shutdown_timeout_ms", -1),
        ("shutdown_timeout_ms", 1.0),
        ("shutdown_timeout_ms", True),
        ("shutdown_timeout_ms", 10**9),
    ],
)
def test_a_bad_field_is_named_at_construction_and_again(field: str, value: Any) -> None:
    """A field given in code is checked at construction, and by validate() when it was changed afterwards."""
    with pytest.raises(ValueError, match=rf"NemoLensConfig\.{field}=.*expected"):
        NemoLensConfig(**{field: value})
    config = NemoLensConfig()
    setattr(config, field, value)
    with pytest.raises(ValueError, match=rf"NemoLensConfig\.{field}=.*expected"):
        config.validate()


def test_a_field_changed_after_reading_is_not_blamed_on_the_variable() -> None:
    """Once code has changed a field, errors and sources name the code."""
    config = NemoLensConfig.from_env(environ={"NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "7"})
    config.shutdown_timeout_ms = -3
    assert config.sources["shutdown_timeout_ms"] == "code"
    with pytest.raises(ValueError, match=r"^NemoLensConfig\.shutdown_timeout_ms=-3"):
        config.validate()


def test_a_misspelt_field_is_found() -> None:
    """Setting an attribute that looks like a field raises at validation, with the field that was meant."""
    config = NemoLensConfig()
    config.enabeld = True  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no field 'enabeld', did you mean 'enabled'"):
        config.validate()


def test_the_exporter_is_not_resolved_here() -> None:
    """Any exporter name passes: whether it exists is known at setup only."""
    assert NemoLensConfig(exporter="their_own").exporter == "their_own"


def test_text_is_stripped_and_a_blank_service_name_is_unset() -> None:
    """Blanks around text are no part of it, in code as in the environment; service_name="" means None."""
    config = NemoLensConfig(service_name=" ", user=" ada ", span_groups=" , ")
    assert (config.service_name, config.user, config.span_groups) == (None, "ada", "")
    assert config.sources["service_name"] == "default"


def test_an_unknown_variable_is_one_warning_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt variable with the prefix is named once, with the one that was meant when there is a near one."""
    environ = {"NEMO_LENS_SPAN_GRUPS": "io", "NEMO_LENS_enabled": "1", "NEMO_LENS_ZZZZ": "1", "NEMO_LENS_BLANK": " "}
    for _ in range(2):
        assert NemoLensConfig.from_env(environ=environ) == NemoLensConfig()
    messages = sorted(_warnings(caplog))
    assert len(messages) == 3
    assert "NEMO_LENS_SPAN_GRUPS" in messages[0]
    assert "did you mean 'NEMO_LENS_SPAN_GROUPS'?" in messages[0]
    assert "NEMO_LENS_ZZZZ" in messages[1]
    assert "did you mean" not in messages[1]
    assert "did you mean 'NEMO_LENS_ENABLED'?" in messages[2]


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ({}, {"NEMO_LENS_INSTRUMENT": "ray", "NEMO_LENS_BACKEND": "otel"}),
        ({"known": ["EXTRA", "NEMO_LENS_OTHER"]}, {"NEMO_LENS_EXTRA": "1", "NEMO_LENS_OTHER": "1"}),
        ({"known": "EXTRA"}, {"NEMO_LENS_EXTRA": "1"}),
        ({"prefix": "NEMO"}, {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_TYPO": "1"}),
        ({"prefix": "NEMO", "fallback_prefix": "NEMO_RL"}, {"NEMO_RL_ENABLED": "1"}),
        ({"prefix": "MY_"}, {"MY_ENABLED": "1", "MYSELF": "1", "OTHER_TYPO": "1"}),
        ({}, {"NEMO_LENS": "1", "NEMO_LENSES": "1"}),
    ],
)
def test_known_names_get_no_warning(
    arguments: dict[str, Any], environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Names the library or the caller knows, and names of another prefix that happens to begin alike, are silent."""
    NemoLensConfig.from_env(environ=environ, **arguments)
    assert _warnings(caplog) == []


def test_a_misspelt_variable_of_the_fallback_is_found_too(caplog: pytest.LogCaptureFixture) -> None:
    """Both prefixes are searched, and the suggestion keeps the prefix that was used."""
    NemoLensConfig.from_env("MY", "NEMO_LENS", environ={"NEMO_LENS_EXPORTR": "file", "MY_EXPORTR": "file"})
    assert [message.rpartition("'NEMO_LENS_EXPORTER'")[1] for message in _warnings(caplog)] == [
        "",
        "'NEMO_LENS_EXPORTER'",
    ]


def test_sources_survive_replace_copy_and_pickle() -> None:
    """A copy with one field changed still knows the variables of the others; the changed field comes from code."""
    environ = {"OTEL_SERVICE_NAME": "trainer", "NEMO_LENS_EXPORTER": "console"}
    config = NemoLensConfig.from_env(environ=environ)
    replaced = dataclasses.replace(config, exporter="file", user="ada")
    assert replaced.sources["service_name"] == "OTEL_SERVICE_NAME"
    assert (replaced.sources["exporter"], replaced.sources["user"]) == ("code", "code")
    assert pickle.loads(pickle.dumps(config)).sources == config.sources
    assert NemoLensConfig(service_name="mine").sources["service_name"] == "code"


def test_sources_are_no_part_of_the_configuration() -> None:
    """Two configurations of equal fields are equal, print alike and convert alike, wherever the values came from."""
    read = NemoLensConfig.from_env(environ={"NEMO_LENS_USER_ID": "ada"})
    given_in_code = NemoLensConfig(user="ada")
    assert read == given_in_code
    assert repr(read) == repr(given_in_code)
    assert NemoLensConfig(**dataclasses.asdict(read)) == read


_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
_bare = ("wandb_entity", "wandb_project", "deployment_environment")
_configs = st.builds(
    NemoLensConfig,
    **{name: st.booleans() for name, default in DEFAULTS.items() if isinstance(default, bool)},
    **dict.fromkeys(("span_groups", "file_path", "run_id", "user", *_bare), _text),
    service_name=st.none() | _text,
    exporter=_text.filter(str.strip),
    shutdown_timeout_ms=st.integers(0, 86_400_000),
)


@given(config=_configs, prefix=st.sampled_from(["NEMO_LENS", "MY"]))
def test_to_env_sets_up_an_equal_configuration(config: NemoLensConfig, prefix: str) -> None:
    """Whatever the fields hold, from_env reads it back from what to_env wrote, a blank run id resolved."""
    environ: Mapping[str, str] = config.to_env(prefix)
    assert NemoLensConfig.from_env(prefix, environ=environ) == resolved(config)


@given(config=_configs)
def test_to_env_covers_an_inherited_environment(config: NemoLensConfig) -> None:
    """Laid over the parent's variables, to_env wins for every field with a variable of the prefix."""
    inherited = {name: text for name, text, *_ in READINGS if name.startswith("NEMO_LENS") and "SERVICE" not in name}
    assert NemoLensConfig.from_env(environ={**inherited, **config.to_env()}) == resolved(config)


def resolved(config: NemoLensConfig) -> NemoLensConfig:
    return dataclasses.replace(config, run_id=config.run_id or ensure_run_id())


def test_to_env_hands_the_resolved_run_id_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run id that was left to be derived is written as this process derives it: random, or a launcher's or job's."""
    assert NemoLensConfig().to_env("MY")["MY_RUN_ID"] == ensure_run_id() != ""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert NemoLensConfig().to_env()["NEMO_LENS_RUN_ID"] == "4711"
    assert NemoLensConfig(run_id="mine").to_env()["NEMO_LENS_RUN_ID"] == "mine"


def test_to_env_leaves_other_tools_alone() -> None:
    """Variables of other tools, and the service name, are written only when their field is set."""
    assert {name for name in NemoLensConfig().to_env() if not name.startswith("NEMO_LENS_")} == set()
    assert "NEMO_LENS_SERVICE_NAME" not in NemoLensConfig().to_env()
    config = NemoLensConfig(service_name="s", wandb_entity="e", wandb_project="p", deployment_environment="d")
    written = {"NEMO_LENS_SERVICE_NAME": "s", "WANDB_ENTITY": "e", "WANDB_PROJECT": "p", "DEPLOYMENT_ENV": "d"}
    assert written.items() <= config.to_env().items()
