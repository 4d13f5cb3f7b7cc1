"""``nemo-lens groups`` over libraries that are really installed: folders with their metadata on the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINER = 'SPAN_GROUPS = {"groups": ["step", "checkpoint"], "presets": {"default": ["step"], "io": ["checkpoint"]}}\n'
ROLLOUTS = 'def span_groups():\n    return {"groups": ["generate"], "presets": {"default": ["generate"]}}\n'


def install(site: Path, library: str, code: str, value: str) -> None:
    """Lay out a distribution ``library`` 1.2 whose entry point named after it is ``value``."""
    (site / f"{library}.py").write_text(code)
    metadata = site / f"{library}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[nemo_lens.span_groups]\n{library} = {value}\n")


def groups(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "groups", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site)},
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path, "trainer", TRAINER, "trainer:SPAN_GROUPS")
    install(tmp_path, "rollouts", ROLLOUTS, "rollouts:span_groups")
    return tmp_path


def test_every_library_is_listed_with_its_groups_and_presets(site: Path) -> None:
    """Each namespace with where it comes from, then the presets over all of them."""
    done = groups(site)
    assert done.stderr == ""
    assert done.stdout == (
        "rollouts  from rollouts 1.2\n"
        "  groups             generate\n"
        "  preset default     generate\n"
        "\n"
        "trainer  from trainer 1.2\n"
        "  groups             checkpoint, step\n"
        "  preset default     step\n"
        "  preset io          checkpoint\n"
        "\n"
        "NEMO_LENS_SPAN_GROUPS takes any of the groups, and:\n"
        "  default            generate, step\n"
        "  io                 checkpoint\n"
        "  all                every group above\n"
    )


def test_json_holds_the_same(site: Path) -> None:
    """``--json`` prints one object."""
    assert json.loads(groups(site, "--json").stdout) == {
        "namespaces": {
            "rollouts": {"distribution": "rollouts 1.2", "groups": ["generate"], "presets": {"default": ["generate"]}},
            "trainer": {
                "distribution": "trainer 1.2",
                "groups": ["checkpoint", "step"],
                "presets": {"default": ["step"], "io": ["checkpoint"]},
            },
        },
        "presets": {"default": ["generate", "step"], "io": ["checkpoint"]},
        "errors": [],
    }


@pytest.mark.parametrize(
    ("code", "value", "why"),
    [
        ("raise RuntimeError('no driver')", "broken:SPAN_GROUPS", "no driver"),
        ("", "broken:SPAN_GROUPS", "SPAN_GROUPS"),
        ("def f(): raise OSError('gone')", "broken:f", "gone"),
        ("SPAN_GROUPS = {'presets': {}}", "broken:SPAN_GROUPS", "groups"),
        ("SPAN_GROUPS = {'groups': ['all']}", "broken:SPAN_GROUPS", "all"),
        ("SPAN_GROUPS = 7", "broken:SPAN_GROUPS", "int"),
    ],
)
def test_a_broken_library_is_reported_and_skipped(site: Path, code: str, value: str, why: str) -> None:
    """One that fails to load or declares nonsense is named with its distribution; the others are listed."""
    install(site, "broken", code, value)
    done = groups(site)
    assert "broken" not in done.stdout
    assert "trainer  from trainer 1.2" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "'broken' (broken 1.2)" in done.stderr
    assert why in done.stderr
    (error,) = json.loads(groups(site, "--json").stdout)["errors"]
    assert (error["namespace"], error["distribution"]) == ("broken", "broken 1.2")
    assert why in error["error"]


def test_a_library_that_prints_does_not_spoil_the_output(site: Path) -> None:
    """What a library prints while it is imported goes to standard error."""
    install(site, "chatty", "print('hello')\nSPAN_GROUPS = {'groups': ['talk']}\n", "chatty:SPAN_GROUPS")
    done = groups(site, "--json")
    assert json.loads(done.stdout)["namespaces"]["chatty"]["groups"] == ["talk"]
    assert done.stderr == "hello\n"


def test_nothing_installed_says_how_a_library_registers(tmp_path: Path) -> None:
    """The first thing an author of a library sees is what to write, and what it says works."""
    done = groups(tmp_path)
    assert "No installed library declares span groups." in done.stdout
    assert '[project.entry-points."nemo_lens.span_groups"]' in done.stdout
    example = next(text.strip() for text in done.stdout.splitlines() if text.strip().startswith("SPAN_GROUPS = "))
    install(tmp_path, "my_library", f"{example}\n", "my_library:SPAN_GROUPS")
    assert json.loads(groups(tmp_path, "--json").stdout)["namespaces"]["my_library"]["groups"] == ["checkpoint", "step"]
