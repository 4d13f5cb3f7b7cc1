"""Any subset of the wheels, each in a folder of its own on ``sys.path``, works."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.distributions import NAMES, Built, unpack

IMPORTS = {
    "api": "from nemo_lens.api import managed_span; import nemo_lens.api as part",
    "sdk": "from nemo_lens.sdk.backend import BACKEND; import nemo_lens.sdk as part",
    "contrib": "import nemo_lens.contrib as part",
}
WHERE = "\nimport os; print(os.path.dirname(part.__file__))"


@pytest.fixture(scope="module")
def folders(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Install each wheel into its own folder."""
    root = tmp_path_factory.mktemp("split")
    return {name: unpack(built[name], root / name) for name in NAMES}


def _run(program: str, path: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    # -S and a plain path entry for third parties: editable installs of this project hook in through .pth files.
    third_party = sysconfig.get_path("purelib")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS", "OTEL_", "PYTHON"))}
    environ["PYTHONPATH"] = os.pathsep.join([*map(str, path), third_party])
    return subprocess.run(
        [sys.executable, "-S", "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_all_three_work_together(folders: dict[str, Path]) -> None:
    """With all three folders on the path, each sub-package comes from its own and the backend is found."""
    for name in NAMES:
        run = _run(IMPORTS[name] + WHERE, [*folders.values()])
        assert run.returncode == 0, run.stderr
        assert Path(run.stdout.strip()).is_relative_to(folders[name])
    run = _run(
        "from nemo_lens.api import NemoLensConfig, managed_span, setup_telemetry\n"
        "with setup_telemetry(NemoLensConfig(enabled=True, exporter='console', metrics_enabled=False)) as handle:\n"
        "    assert handle.is_exporting\n",
        [*folders.values()],
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("removed", NAMES)
def test_removing_one_leaves_the_others(folders: dict[str, Path], removed: str) -> None:
    """With one folder gone, what does not depend on it can still be imported, and it cannot."""
    path = [folder for name, folder in folders.items() if name != removed]
    for name in NAMES:
        run = _run(IMPORTS[name], path)
        depends_on_removed = name == removed or (removed == "api" and name == "sdk")
        assert (run.returncode != 0) == depends_on_removed, (name, run.stderr)
        if depends_on_removed:
            assert "ModuleNotFoundError" in run.stderr


def test_the_order_of_the_folders_does_not_matter(folders: dict[str, Path]) -> None:
    """The sub-packages are found in whatever order their folders stand on the path."""
    for order in (("sdk", "contrib", "api"), ("contrib", "api", "sdk")):
        for name in NAMES:
            run = _run(IMPORTS[name], [folders[item] for item in order])
            assert run.returncode == 0, run.stderr
