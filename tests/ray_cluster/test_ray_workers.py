"""How worker processes are set up under a real Ray, in one place and another, and beside Ray's own tracing."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray_runs import PROGRAMS, Finished, needs_ray, ray_run

pytestmark = [needs_ray, pytest.mark.timeout(180), pytest.mark.xdist_group("ray workers")]


@pytest.fixture(scope="module")
def switching(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the jobs once for all tests here, with a module on the path that hides the integration where HIDE is set."""
    folder = tmp_path_factory.mktemp("switching")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('HIDE'): sys.modules['nemo_lens.contrib.ray'] = None\n", encoding="utf-8"
    )
    return ray_run("switching", folder, {"PYTHONPATH": f"{folder}:{PROGRAMS}"})


def test_workers_trace_for_a_driver_that_does_not(switching: Finished) -> None:
    """With telemetry off in the driver, a worker set up by ``ray_runtime_env`` has root spans."""
    assert switching.facts["driver off"] == [1, ["a"], True]
    assert switching.spans("driver off") == []
    assert switching.parents("work")[0] is None


def test_a_driver_traces_for_workers_that_do_not(switching: Finished) -> None:
    """With telemetry off in the workers, or nothing to set them up, calls go as ever and the driver has its spans."""
    for job in ("workers off", "no hook"):
        assert switching.facts[job] == [1, ["a"], False]
        assert switching.parents(job) == [None]
        assert switching.facts[f"{job} flushed"]


def test_what_the_users_runtime_environment_says_stays(switching: Finished) -> None:
    """Ray has room for one set-up hook: ours runs the user's, a function or a name. Variables are kept."""
    for job in ("driver off", "driver off, hook by name"):
        assert (switching.facts[f"{job} seen"]["OWN_HOOK"], switching.facts[f"{job} seen"]["A"]) == ("has run", "b")


def test_settings_that_do_not_stand_up_cost_telemetry_and_nothing_else(switching: Finished) -> None:
    """A worker that cannot be set up works on, and says what is wrong."""
    assert switching.facts["bad settings"] == [1, ["a"], False]
    assert "NEMO_LENS_SHUTDOWN_TIMEOUT_MS" in switching.stderr


def test_the_hook_can_be_given_as_text(switching: Finished) -> None:
    """Where a runtime environment is JSON, the name of ``setup_worker`` and the configuration do."""
    assert switching.facts["hook as text"] == [1, ["a"], True]


def test_a_worker_without_the_package_works_on(switching: Finished) -> None:
    """The hook is pickled whole: where the integration is not installed it says so, and the worker starts."""
    assert switching.facts["bare"] == "works"
    assert "telemetry is off in a Ray worker" in switching.stderr


def test_the_entry_point_sets_workers_up_until_it_is_undone(switching: Finished) -> None:
    """``ray.init`` is enough; run id and parent come from the driver; ``uninstrument`` gives Ray's own back."""
    assert switching.facts["gate"] == [1, [], True]
    assert switching.facts["seen"]["NEMO_LENS_RUN_ID"] == switching.facts["run_id"]
    (launch,) = switching.spans("launch")
    assert launch["span_id"] in switching.facts["seen"]["TRACEPARENT"]
    assert switching.spans("never there") == []
    assert switching.parents("work")[-1] == "launch"
    assert switching.facts["undone"] == [1, ["a"], False]


def test_set_up_again_is_nothing(switching: Finished) -> None:
    """``setup_worker`` in a worker that is set up leaves it alone."""
    assert switching.facts["driver off again"] is True


def test_nothing_is_doubled_where_ray_traces_itself(tmp_path: Path) -> None:
    """With Ray's tracing hook there are its spans and none of ours, and what is inside a call is their child."""
    run = ray_run("own_tracing", tmp_path, {"PYTHONPATH": str(PROGRAMS)})
    assert run.facts["results"] == [1, 2, 3]
    names = run.written.names()
    assert [name for name in names if name in ("task", "method", "coroutine")] == []
    remote = [
        name for name in names if name.endswith(" ray.remote_worker") and "__" not in name.replace("__main__", "")
    ]
    assert len(remote) == 3
    for inside in ("in task", "in method", "in coroutine"):
        (parent,) = run.parents(inside)
        assert parent in remote


def test_one_trace_goes_over_two_nodes(tmp_path: Path) -> None:
    """An actor on one node and the task that it starts on another are of the driver's trace."""
    run = ray_run("two_nodes", tmp_path)
    assert len(set(run.facts["nodes"])) == 2
    assert (run.parents("near"), run.parents("far")) == (["driver"], ["near"])
    assert len({span["trace_id"] for span in run.written.spans()}) == 1
