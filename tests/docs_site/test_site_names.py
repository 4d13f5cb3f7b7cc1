"""The reference of the API: every public name is there, with a docstring."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.built_site import ROOT, Site

pytest.importorskip("griffe", reason="the sources are read by griffe, which mkdocstrings brings: nox -s docs")
from support.public_names import (
    INTERNAL_MODULES,
    PUBLIC_MODULES,
    WHEELS,
    load,
    modules_with_exports,
    public_names,
    undocumented,
)

REFERENCE = ("reference/api.html", "reference/sdk.html", "reference/contrib.html")
NEW = '\n__all__ += ["forgotten"]\n\n\ndef forgotten() -> None:\n    {docstring}\n'


@pytest.fixture(scope="module")
def namespace() -> Any:
    """The sources of this checkout."""
    return load()


@pytest.fixture(scope="module")
def documented(site: Site) -> set[str]:
    """The names that have an anchor on a page of the reference."""
    return set().union(*(site.pages[page].anchors for page in REFERENCE))


def test_every_public_name_is_documented(namespace: Any, documented: set[str]) -> None:
    """Each name of each public ``__all__``, each public method, integration and fixture is in the reference."""
    names = dict(public_names(namespace))
    for known in ("nemo_lens.api.managed_span", "nemo_lens.api.SpanRegistry.register", "nemo_lens.api.__version__"):
        assert known in names
    assert "nemo_lens.sdk.pytest_plugin.nemo_lens_telemetry" in names
    assert undocumented(iter(names.items()), documented) == []


def test_every_module_with_public_names_is_known(namespace: Any) -> None:
    """A new ``__all__`` is put down as public, and so is documented, or as internal."""
    assert sorted(modules_with_exports(namespace)) == sorted((*PUBLIC_MODULES, *INTERNAL_MODULES))


@pytest.mark.parametrize(
    ("docstring", "fault"), [('"""Do it."""', "is not in docs/reference/"), ("...", "has no docstring")]
)
def test_a_forgotten_name_is_found(tmp_path: Path, documented: set[str], docstring: str, fault: str) -> None:
    """A name added to an ``__all__``, and to no page or without a docstring, fails the test above."""
    for wheel in WHEELS:
        shutil.copytree(ROOT / "packages" / wheel / "src", tmp_path / "packages" / wheel / "src")
    module = tmp_path / "packages/nemo-lens-api/src/nemo_lens/api/instruments/__init__.py"
    module.write_text(module.read_text(encoding="utf-8") + NEW.format(docstring=docstring), encoding="utf-8")
    assert undocumented(public_names(load(tmp_path)), documented) == [f"nemo_lens.api.instruments.forgotten {fault}"]


def test_signatures_are_the_typed_ones(site: Site) -> None:
    """What type checkers see is what a reader sees, also of the functions that run with narrower signatures."""
    text = " ".join(site.pages["reference/api.html"].text.split())
    for name, first in (("managed_span", "group: str, name: str,"), ("span_cm", "name: str,")):
        assert f"{name}( {first}" in text
    assert ") -> SpanContextManager" in text
    # The private parameters come after these.
    assert "single_trace: bool = False, )" in text
    assert "log_exporter: Any = None, ) -> TelemetryHandle" in text
    assert ":func:" not in text
    assert ":meth:" not in text


def test_nobody_has_to_know_the_module(site: Site) -> None:
    """Signatures hold no private names and no constants of a module, and say what is a context manager or a fixture."""
    pages = {page: " ".join(site.pages[page].text.split()) for page in REFERENCE}
    text = "".join(pages.values())
    assert re.findall(r"(?<![\w.])_[A-Z]\w*", text) == []
    assert 'prefix: str = "NEMO_LENS"' in text
    assert "start_s: float | int | str | Decimal" in text
    assert "size: int = 512" in text
    assert "publish_otel_resource_attributes context-manager" in pages["reference/sdk.html"]
    assert "nemo_lens_reset fixture" in pages["reference/sdk.html"]


def test_what_is_returned_is_one_paragraph(site: Site) -> None:
    """A Returns section of several lines is not torn into several values, each with a type of its own."""
    text = " ".join(site.pages["reference/api.html"].text.split())
    assert "and the names that matched nothing, sorted." in text


def test_the_inventory_has_the_names(namespace: Any, site: Site) -> None:
    """Other projects' documentation can refer to the names: they are in ``objects.inv``."""
    from mkdocstrings import Inventory

    with (site.folder / "objects.inv").open("rb") as file:
        inventory = Inventory.parse_sphinx(file)
    assert {name for name, _ in public_names(namespace)} - set(inventory) == set()
