"""``docs/integrations/ray.md``: its program, run as it stands with a real Ray."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ray_runs import needs_ray, ray_run

pytestmark = [needs_ray, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "integrations" / "ray.md").read_text(encoding="utf-8")


def test_rollouts_of_both_actors_are_children_of_the_step(tmp_path: Path) -> None:
    """The program of the page: each actor's span is there, in a process of its own, under the driver's step."""
    (program,) = re.findall(r"^```py\n(# rollouts\.py\n.*?)^```$", PAGE, flags=re.M | re.S)
    path = tmp_path / "rollouts.py"
    path.write_text(program, encoding="utf-8")
    run = ray_run(str(path.with_suffix("")), tmp_path)
    assert run.parents("RolloutWorker.rollout") == ["step", "step"]
    pids = {span["resource"]["process.pid"] for span in (*run.spans("RolloutWorker.rollout"), *run.spans("step"))}
    assert len(pids) == 3
