"""Workers that die under a real Ray: each attempt is a span of its own, and a flush saves what a kill would lose."""

from __future__ import annotations

import pytest
from ray_runs import Finished, needs_ray, ray_run

pytestmark = [needs_ray, pytest.mark.timeout(180), pytest.mark.xdist_group("ray failures")]
ERROR = 2


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the program once for all tests here."""
    folder = tmp_path_factory.mktemp("failures")
    return ray_run("failures", folder, {"FOLDER": str(folder)})


def test_each_attempt_of_a_task_is_a_span_under_the_same_parent(failures: Finished) -> None:
    """A task that raised and was tried again has two spans, the first with the error, both of them the caller's."""
    assert failures.facts["raises_once"] == "second attempt"
    assert failures.parents("raises once") == ["driver", "driver"]
    assert [span["status"] == ERROR for span in failures.spans("raises once")] == [True, False]


def test_an_attempt_that_died_leaves_what_it_had_flushed(failures: Finished) -> None:
    """A task whose process died is tried again by another; what was open then is lost, as documented."""
    assert failures.facts["dies_once"] == "second attempt"
    assert failures.parents("dies once") == ["driver"]
    attempts = failures.spans("attempt")
    assert len({span["resource"]["process.pid"] for span in attempts}) == len(attempts) == 2
    assert len({span["trace_id"] for span in attempts}) == 1


def test_a_restarted_actor_goes_on_under_the_same_parent(failures: Finished) -> None:
    """The call that killed the actor is a new span in the new process; later calls are traced there as well."""
    lives = failures.spans("life")
    assert len({span["resource"]["process.pid"] for span in lives}) == 2
    assert len({span["resource"]["service.instance.id"] for span in lives}) == 2
    assert len({span["parent_id"] for span in lives}) == 2
    assert len({span["trace_id"] for span in lives}) == 1
    assert failures.parents("burn") == failures.parents("after") == ["driver"]
    assert failures.facts["burn"] == failures.facts["after"] == lives[1]["resource"]["process.pid"]


def test_a_flush_saves_what_a_kill_would_lose(failures: Finished) -> None:
    """Of two actors that were killed, the flushed one's span has arrived; the other's is lost, as documented.

    So is that of one that still runs at the end of the job. Actors that were asked to end or went out of scope exit.
    """
    assert failures.facts["worked"] == ["flushed", "unflushed", "busy", "ended", "left"]
    assert failures.facts["flushed"] is failures.facts["phoenix"] is failures.facts["nobody"] is True
    assert sorted(span["attributes"]["label"] for span in failures.spans("work")) == ["ended", "flushed", "left"]


def test_an_actor_can_be_given_its_rank(failures: Finished) -> None:
    """Variables of an actor's own runtime environment are added to the job's; a rank makes the instance id."""
    for span in failures.spans("work"):
        resource = span["resource"]
        assert resource["nv.dl.rank"] == 3
        assert resource["service.instance.id"] == f"{resource['nemo.run.id']}-rank3"


def test_a_flush_that_cannot_be_is_bounded_and_said(failures: Finished) -> None:
    """A dead actor and a busy one give False, within the time that was given, and a warning with how many."""
    assert failures.facts["dead"] is failures.facts["busy"] is False
    assert failures.facts["dead_s"] < 15
    assert failures.facts["busy_s"] < 10
    assert failures.stderr.count("1 of 1 actors did not confirm within 20000 ms") == 1
    assert failures.stderr.count("1 of 2 actors did not confirm within 700 ms") == 1


def test_one_that_takes_no_call_leaves_the_others_flushed(failures: Finished) -> None:
    """An actor with all the pending calls that it may have, and what is no actor, cost their own flush only."""
    assert failures.facts["full"] is False
    assert failures.stderr.count("2 of 3 actors did not confirm within 20001 ms") == 1


def test_a_flush_after_the_end_starts_nothing(failures: Finished) -> None:
    """After ``ray.shutdown`` it is False with a warning, and Ray's own start of a cluster does not happen."""
    assert failures.facts["after_shutdown"] is failures.facts["started"] is False
    assert failures.facts["nobody_then"] is True
    assert failures.stderr.count("Ray is not initialized here, or has been shut down") == 1
