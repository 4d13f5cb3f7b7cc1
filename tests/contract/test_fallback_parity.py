"""The vendorable file against the API: the same names, signatures and behaviour, and nothing needed but itself."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nemo_lens.api
from nemo_lens.api import fallbacks

CALLABLES = sorted(name for name in nemo_lens.api.__all__ if inspect.isroutine(getattr(nemo_lens.api, name)))
METHODS = [
    (owner, name)
    for owner in ("SpanRegistry", "NemoLensConfig")
    for name, _ in inspect.getmembers(getattr(nemo_lens.api, owner), inspect.isroutine)
    if not name.startswith("_")
]

SEAM = """
import sys
try:
    from nemo_lens.api import managed_span, span_cm, trace_fn, SpanRegistry
except ModuleNotFoundError as missing:
    if missing.name not in ("nemo_lens", "nemo_lens.api"):
        raise
    from mylib._lens import managed_span, span_cm, trace_fn, SpanRegistry

SpanRegistry.register("mylib", ["mylib.io"], {"default": ["mylib.io"]})

@trace_fn("mylib.io", attributes=lambda path: {"path": path})
def read(path):
    with managed_span("mylib.io", "open", path=path) as span:
        assert span is None
    with span_cm("parse") as span:
        span.set_attribute("lines", 3)
    return path
"""


def test_every_public_name_is_there() -> None:
    """A library that takes the vendored file finds every name it could have imported from the API."""
    assert [name for name in nemo_lens.api.__all__ if not hasattr(fallbacks, name)] == []


@pytest.mark.parametrize("name", CALLABLES)
def test_functions_take_the_same_arguments(name: str) -> None:
    """Each function has the parameters of the real one: names, kinds, order and defaults."""
    _same_parameters(getattr(nemo_lens.api, name), getattr(fallbacks, name))


@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_methods_take_the_same_arguments(owner: str, name: str) -> None:
    """So does each public method of the registry and the configuration."""
    _same_parameters(getattr(getattr(nemo_lens.api, owner), name), getattr(getattr(fallbacks, owner), name))


def _same_parameters(real: Any, fallback: Any) -> None:
    ours, theirs = inspect.signature(fallback).parameters, inspect.signature(real).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in ours.values()):
        # Keyword options, which the helpers take by **attrs to be as cheap as they can be.
        theirs_kept = {name: one for name, one in theirs.items() if name in ours or one.kind is not one.KEYWORD_ONLY}
    else:
        theirs_kept = dict(theirs)
    assert [(one.name, one.kind, one.default) for one in ours.values()] == [
        (one.name, one.kind, one.default) for one in theirs_kept.values()
    ]


def test_the_configuration_has_the_same_fields() -> None:
    """Fields, their order and their defaults are those of the real configuration."""
    real = nemo_lens.api.NemoLensConfig()
    values = {field.name: getattr(real, field.name) for field in dataclasses.fields(real)}
    assert vars(fallbacks.NemoLensConfig()) == values
    assert list(vars(fallbacks.NemoLensConfig())) == list(values)
    assert vars(fallbacks.NemoLensConfig(*values.values())) == values


def test_the_handle_has_the_same_parts() -> None:
    """The null handle has every part that the protocol names, with the same parameters."""
    parts = [name for name in vars(nemo_lens.api.TelemetryHandle) if not name.startswith("_")]
    assert "force_flush" in parts
    for name in parts:
        real = getattr(nemo_lens.api.TelemetryHandle, name)
        assert hasattr(fallbacks.NULL_HANDLE, name)
        if inspect.isroutine(real):
            _same_parameters(real, getattr(fallbacks.NullHandle, name))


_keys = st.text(alphabet="abcKEY_-.", max_size=6).flatmap(
    lambda text: st.sampled_from(
        [text, *(f"{text}{sep}{key}" for sep in ("", "_", "-", ".") for key in ("token", "Api_Key", "text", "SECRET"))]
    )
)
_plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)


@given(_keys, _plain | st.lists(_plain, max_size=3) | st.lists(_plain, max_size=3).map(tuple), st.booleans())
def test_redaction_is_the_same(key: str, value: object, own_keys: bool) -> None:
    """The vendored file withholds exactly what the API withholds."""
    keys = frozenset({"text", "abc", "secret"}) if own_keys else fallbacks.DEFAULT_REDACT_KEYS
    assert fallbacks.redact_value(key, value, keys) == nemo_lens.api.redact_value(key, value, keys)
    assert nemo_lens.api.DEFAULT_REDACT_KEYS == fallbacks.DEFAULT_REDACT_KEYS


def test_null_objects_are_shared() -> None:
    """The API itself hands out the null objects of this file, so the two cannot drift apart."""
    assert nemo_lens.api.setup_telemetry(nemo_lens.api.NemoLensConfig()) is fallbacks.NULL_HANDLE
    assert nemo_lens.api.managed_span("off", "a") is fallbacks.NULL_CONTEXT
    with nemo_lens.api.span_cm("a") as span:
        assert span is fallbacks.NULL_SPAN


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Lay out a library that vendors the file, in a folder of its own."""
    package = tmp_path / "mylib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "io.py").write_text(SEAM)
    (package / "_lens.py").write_text(Path(fallbacks.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def _run(library: Path, code: str) -> subprocess.CompletedProcess[str]:
    # -S leaves site-packages out: nemo_lens is not installed in this interpreter.
    return subprocess.run(
        [sys.executable, "-S", "-E", "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(library)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_vendored_copy_works_without_nemo_lens(library: Path) -> None:
    """Copied elsewhere under another name, it imports and works where ``nemo_lens`` is not installed."""
    done = _run(
        library,
        """
before = set(sys.modules)
import mylib._lens
added = {name.partition(".")[0] for name in set(sys.modules) - before} - {"mylib"}
assert not added - set(sys.stdlib_module_names), added
assert not added & {"logging", "inspect", "typing", "dataclasses", "asyncio"}, added
from mylib.io import read, managed_span
assert read("x") == "x" and managed_span.__module__ == "mylib._lens"
assert "nemo_lens" not in sys.modules
""",
    )
    assert done.returncode == 0, done.stderr


def test_the_seam_is_loud_about_anything_else(library: Path) -> None:
    """With a broken ``nemo_lens`` installed, the library's seam does not hide the breakage behind the fallback."""
    broken = library / "nemo_lens" / "api"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("import a_module_that_is_missing")
    done = _run(library, "import mylib.io")
    assert done.returncode == 1
    assert "a_module_that_is_missing" in done.stderr.splitlines()[-1]
