"""``nemo-lens doctor`` where packages, plug-ins or backends are missing, broken or one too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.doctor_run import copy_wheels, doctor, install, run_text

CONSOLE = {"NEMO_LENS_EXPORTER": "console"}


def test_no_opentelemetry(tmp_path: Path) -> None:
    """Without OpenTelemetry's packages it runs, says which are missing and how to get them, and exits 1."""
    python = copy_wheels(tmp_path, metadata=True)
    run = doctor(python=python)
    assert (run.code, run.stderr) == (1, "")
    assert run.report["arrives"] is False
    assert run.report["endpoints"] == []
    assert "opentelemetry-sdk" in run.finding("package_missing")["message"]
    found = run.finding("no_backend")
    assert "No module named 'opentelemetry'" in found["message"]
    assert "pip install" in found["remedy"]
    assert run.setting("enabled")["origin"] == "NEMO_LENS_ENABLED"
    done = run_text(python=python)
    assert (done.returncode, done.stderr) == (1, "")
    assert "Telemetry would not arrive" in done.stdout


def test_broken_opentelemetry(tmp_path: Path) -> None:
    """A package of OpenTelemetry's that raises while it is imported is a problem with its own words, no traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Broken:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'opentelemetry.sdk':\n"
        "            raise ImportError('half an upgrade')\n"
        "sys.meta_path.insert(0, Broken())\n"
    )
    run = doctor(PYTHONPATH=str(tmp_path))
    assert (run.code, run.stderr) == (1, "")
    assert "half an upgrade" in run.finding("no_backend")["message"]
    assert run.report["endpoints"] == []


def test_wheels_without_their_metadata(tmp_path: Path) -> None:
    """Folders on PYTHONPATH are no installation: no entry point, so no backend."""
    run = doctor(python=copy_wheels(tmp_path, metadata=False))
    assert run.code == 1
    assert str(tmp_path) in run.finding("no_metadata")["message"]
    assert "pip install nemo-lens-sdk" in run.finding("no_backend")["remedy"]


def test_two_backends(tmp_path: Path) -> None:
    """Both are named with their distributions; otel is used; the other one's exports are its own business."""
    install(tmp_path, "rival", "BACKEND = object()\n", "[nemo_lens.backend]\nrival = rival:BACKEND\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    found = run.finding("several_backends")
    assert (run.code, found["level"]) == (0, "warning")
    assert "rival of rival 1.2" in found["message"]
    assert "otel of nemo-lens-sdk" in found["message"]
    assert run.report["installation"]["backend"] == "otel"

    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_BACKEND="rival", **CONSOLE)
    assert run.code == 0
    assert run.findings("several_backends") == []
    assert run.finding("foreign_backend")["level"] == "warning"
    assert run.report["endpoints"] == []

    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_BACKEND="rivall", **CONSOLE)
    assert run.code == 1
    assert "did you mean 'rival'" in run.finding("backend_unknown")["message"]


def test_the_chosen_backend_is_broken(tmp_path: Path) -> None:
    """A backend that does not load is a problem when it is the one to use."""
    install(tmp_path, "rival", "raise OSError('no licence')\n", "[nemo_lens.backend]\nrival = rival:BACKEND\n")
    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_BACKEND="rival", **CONSOLE)
    assert run.code == 1
    assert "backend rival of rival 1.2 does not load: OSError: no licence" in run.finding("no_backend")["message"]
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert run.code == 0
    assert any("no licence" in found["message"] for found in run.findings("plugin_broken"))


@pytest.mark.parametrize(
    "group",
    [
        "nemo_lens.instrumentation",
        "nemo_lens.span_groups",
        "opentelemetry_resource_detector",
        "opentelemetry_traces_exporter",
    ],
)
def test_a_broken_plug_in(tmp_path: Path, group: str) -> None:
    """A plug-in that raises at import is a warning that names it, its distribution and its fault."""
    install(tmp_path, "broken", "raise RuntimeError('no driver')\n", f"[{group}]\nwheel = broken:X\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert (run.code, run.stderr) == (0, "")
    (found,) = [found for found in run.findings("plugin_broken") if "broken 1.2" in found["message"]]
    assert found["level"] == "warning"
    assert "RuntimeError: no driver" in found["message"]
    (point,) = [each for each in run.report["installation"]["entry_points"] if each["distribution"] == "broken 1.2"]
    assert (point["group"], point["name"], point["loads"]) == (group, "wheel", False)
    assert "no driver" in point["error"]


def test_the_chosen_exporter_is_broken(tmp_path: Path) -> None:
    """An exporter that does not load is a problem when it is the one to use."""
    points = "".join(f"[opentelemetry_{each}_exporter]\nwheel = broken:X\n" for each in ("traces", "metrics", "logs"))
    install(tmp_path, "broken", "raise RuntimeError('no driver')\n", points)
    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_EXPORTER="wheel")
    assert run.code == 1
    found = run.finding("bad_setting")
    assert found["signals"] == ["traces", "metrics", "logs"]
    assert "broken 1.2" in found["message"]
    assert "no driver" in found["message"]


def test_an_exporter_of_somebody_else(tmp_path: Path) -> None:
    """One that loads is all that can be said of it."""
    code = "class Exporter:\n    def export(self, batch): ...\n"
    points = "".join(f"[opentelemetry_{each}_exporter]\npigeon = pigeon:Exporter\n" for each in ("traces", "metrics"))
    install(tmp_path, "pigeon", code, points)
    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_EXPORTER="pigeon", NEMO_LENS_LOGS_ENABLED="0")
    assert run.code == 0
    assert run.outcomes() == {"traces": "plugin", "metrics": "plugin", "logs": "off"}


def test_plug_ins_that_misbehave_do_not_spoil_the_report(tmp_path: Path) -> None:
    """What they print and warn about stays off standard output, and one that exits does not end doctor."""
    chatty = (
        "import logging, sys, warnings\n"
        "print('hello'); warnings.warn('old'); logging.getLogger('chatty').error('oh'); sys.exit(3)\n"
    )
    install(tmp_path, "chatty", chatty, "[nemo_lens.instrumentation]\nchatty = chatty:X\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert run.stderr == "hello\n"
    assert any("SystemExit: 3" in found["message"] for found in run.findings("plugin_broken"))


def test_versions_that_do_not_fit(tmp_path: Path) -> None:
    """What an installed distribution of ours or of OpenTelemetry's requires is compared with what is there."""
    requires = ("opentelemetry-api==0.1", "grpcio>=1", "left-pad>=9", "torch; extra == 'all'")
    install(tmp_path, "opentelemetry_odd", "", "", requires)
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    assert run.code == 1
    mixed = [each for each in run.findings("versions_mixed") if "opentelemetry-odd" in each["message"]]
    assert [each["level"] for each in mixed] == ["warning"]
    assert "needs opentelemetry-api==0.1, and" in mixed[0]["message"]
    missing = run.finding("package_missing")["message"]
    assert missing.startswith("opentelemetry-odd 1.2 needs what is not installed: left-pad>=9")


def test_a_distribution_that_is_there_twice(tmp_path: Path) -> None:
    """An old copy in front of the installed one is pointed out, with both places."""
    info = tmp_path / "opentelemetry_sdk-0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: opentelemetry-sdk\nVersion: 0.9\n")
    run = doctor(PYTHONPATH=str(tmp_path), **CONSOLE)
    message = run.finding("installed_twice")["message"]
    assert f"0.9 in {tmp_path}, which is used" in message


def test_integrations_that_are_asked_for(tmp_path: Path) -> None:
    """A name in NEMO_LENS_INSTRUMENT that nothing provides is a warning."""
    install(tmp_path, "engine", "def switch_on(): ...\n", "[nemo_lens.instrumentation]\nengine = engine:switch_on\n")
    run = doctor(PYTHONPATH=str(tmp_path), NEMO_LENS_INSTRUMENT="engine, enginee", **CONSOLE)
    assert run.code == 0
    assert "'enginee'" in run.finding("integration_missing")["message"]
    assert "did you mean 'engine'" in run.finding("integration_missing")["message"]
