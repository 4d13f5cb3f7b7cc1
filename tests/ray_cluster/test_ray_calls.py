"""Remote calls of every kind, over one real Ray cluster: whose child is each span, and what Ray sees of it."""

from __future__ import annotations

import pytest
from ray_runs import Finished, needs_ray, ray_run

from support.otlp_decode import Record

pytestmark = [needs_ray, pytest.mark.timeout(180), pytest.mark.xdist_group("ray calls")]
INTERNAL, CONSUMER, ERROR = 1, 5, 2


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the program once for all tests here."""
    return ray_run("calls", tmp_path_factory.mktemp("calls"), {"NEMO_LENS_INSTRUMENT": "ray"})


def _pid(span: Record) -> int:
    return int(span["resource"]["process.pid"])


def test_a_task_and_the_task_it_starts_are_children_of_their_callers(calls: Finished) -> None:
    """Driver, task and nested task run in three processes and form one trace, with what the caller asked for."""
    (tasks,), (outer,) = calls.spans("tasks"), calls.spans("outer")
    inner = calls.spans("inner")[0]
    assert calls.facts["outer"] == 5
    assert (calls.parent(tasks), calls.parent(outer), calls.parent(inner)) == (None, "tasks", "outer")
    assert len({_pid(tasks), _pid(outer), _pid(inner)}) == 3
    assert (outer["kind"], outer["attributes"]) == (CONSUMER, {"x": 4})


def test_options_and_dispatch_carry_the_context_too(calls: Finished) -> None:
    """``f.options(...).remote`` and ``ray_dispatch_with_context`` of it give children of the caller."""
    assert (calls.facts["options"], calls.facts["dispatched_inner"]) == (8, 2)
    assert calls.parents("inner")[:3] == ["outer", "tasks", "tasks"]


def test_a_generator_task_is_one_span_with_what_its_body_opens(calls: Finished) -> None:
    """A streaming task yields what it did, in one span, under which are those of its body."""
    assert calls.facts["task_stream"] == [0, 1, 2]
    assert (calls.parents("stream"), calls.parents("stream item")) == (["tasks"], ["stream"] * 3)


def test_what_takes_no_carrier_gets_none(calls: Finished) -> None:
    """Functions and methods that take any keyword never see ours, decorated or not, dispatched or called."""
    assert (calls.facts["keywords"], calls.facts["undecorated"]) == (["a"], ["a"])
    assert (calls.facts["dispatched"], calls.facts["dispatched_options"]) == (["b"], ["b"])
    assert calls.facts["actor_undecorated"] == ["c"]


def test_a_group_that_is_off_at_the_worker_leaves_the_call_alone(calls: Finished) -> None:
    """No span, same arguments, same result, although the driver sent a carrier."""
    assert calls.facts["quiet"] == [5, ["a"]]
    assert calls.spans("quiet") == []
    assert calls.parents("inside quiet") == [None]


def test_an_exception_reaches_the_driver_and_marks_the_span(calls: Finished) -> None:
    """The driver gets the user's exception as Ray gives it; the span is an error with that exception."""
    assert calls.facts["fault"] == ["RayTaskError(ValueError)", "the user's"]
    (failing,) = calls.spans("failing")
    assert (failing["status"], failing["description"]) == (ERROR, "ValueError: the user's")


def test_a_carrier_can_be_handed_on_by_hand(calls: Finished) -> None:
    """What ``inject_ray_context`` gave is a parent later, as the reserved keyword and as a context."""
    assert calls.facts["same"]
    assert calls.parents("by hand") == ["tasks"]
    assert calls.facts["later"] == 10
    assert calls.parents("inner")[3] == "tasks"


def test_every_kind_of_actor_method_is_traced(calls: Finished) -> None:
    """Constructors by dispatch, methods, ``ray.method`` on either side, generators, coroutines, async generators."""
    facts = calls.facts
    assert (facts["add"], facts["named"], facts["two"], facts["two_below"]) == (11, 21, [1, 2], [3, 4])
    assert (facts["actor_stream"], facts["chain"], facts["async_stream"]) == ([0, 1, 2], 4, [0, 1, 2])
    assert sorted(map(str, calls.parents("Actor.__init__"))) == ["None", "actors", "actors"]
    for method in ("two", "two_below", "stream"):
        assert calls.parents(f"Actor.{method}") == ["actors"], method
    for method in ("chain", "stream"):
        assert calls.parents(f"Async.{method}") == ["actors"], method
    assert calls.parents("actor item") == ["Actor.stream"] * 3
    assert calls.parents("async item") == ["Async.stream"] * 3
    assert calls.parents("inner")[4] == "Async.chain"


def test_what_an_importable_module_decorates_is_traced_too(calls: Finished) -> None:
    """Remote functions and actor classes of a library, which Ray pickles in another way than the program's own."""
    assert calls.facts["learner"] == [9, 16]
    assert calls.parents("Learner.learn") == calls.parents("Learner.learn_later") == ["actors"]
    assert sorted(map(str, calls.parents("library function"))) == ["Learner.learn", "Learner.learn_later"]


def test_a_direct_call_is_a_child_of_what_is_current(calls: Finished) -> None:
    """A method that an actor calls on itself has no carrier and no remote parent."""
    assert calls.facts["itself"] == 11
    assert [(calls.parent(span), span["kind"]) for span in calls.spans("Actor.add")] == [
        ("actors", CONSUMER),
        ("actors", CONSUMER),
        (None, INTERNAL),
    ]


def test_concurrency_groups_stay(calls: Finished) -> None:
    """Methods decorated on either side of ``ray.method`` run in the thread of their concurrency group."""
    assert calls.facts["own_threads"]
    assert calls.parents("io") == calls.parents("compute") == ["actors"]


def test_concurrent_calls_keep_their_own_parents(calls: Finished) -> None:
    """Four callers at once, in a threaded actor and in an asynchronous one: each span is its caller's child."""
    assert (calls.facts["threaded"], calls.facts["asynchronous"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    for span in calls.spans("threaded"):
        assert calls.parent(span) == f"caller {span['attributes']['key']}"
    by_id = {span["span_id"]: span for span in calls.written.spans()}
    inside = [*calls.spans("in thread"), *calls.spans("met")]
    assert sorted(span["attributes"]["key"] for span in inside) == list(range(8))
    for span in inside:
        assert calls.parent(by_id[span["parent_id"]]) == f"caller {span['attributes']['key']}"


def test_ray_still_rejects_wrong_arguments_at_the_driver(calls: Finished) -> None:
    """Missing, surplus and unknown arguments are a ``TypeError`` of the call, as without us."""
    missing, surplus, unknown, method, dispatched, constructor, undecorated = calls.facts["rejected"]
    assert "'x'" in missing
    assert "too many positional" in surplus
    assert "'x'" in unknown
    assert "'x'" in method
    assert "too many positional" in dispatched
    assert "'start'" in constructor
    assert undecorated is not None


def test_a_hostile_carrier_is_an_empty_context(calls: Finished) -> None:
    """Whatever comes under the keyword, the task runs, and its span is a root of a trace of its own."""
    hostile = calls.facts["hostile"]
    assert len(hostile) == 12
    assert set(hostile.values()) == {1}
    spans = calls.spans("inner")[5:]
    assert [span["parent_id"] for span in spans] == [""] * len(hostile)
    assert len({span["trace_id"] for span in spans}) == len(hostile)


def test_every_process_says_which_worker_it_is(calls: Finished) -> None:
    """All processes are of one run; a worker's instance id ends in Ray's id of the worker, and none is there twice."""
    assert calls.facts["flushed"]
    resources = {_pid(span): span["resource"] for span in calls.written.spans()}
    assert len({resource["nemo.run.id"] for resource in resources.values()}) == 1
    instances = {resource["service.instance.id"] for resource in resources.values()}
    assert len(instances) == len(resources) > 7
    run_id = resources[calls.facts["pid"]]["nemo.run.id"]
    workers = [resource["service.instance.id"] for pid, resource in resources.items() if pid != calls.facts["pid"]]
    assert all(instance.startswith(f"{run_id}-") and len(instance) == len(run_id) + 57 for instance in workers)


def test_workers_say_nothing_of_ranks_or_groups(calls: Finished) -> None:
    """Switched on by ``NEMO_LENS_INSTRUMENT``, no worker warns: the hook gives it instance id and span groups."""
    assert "span groups" not in calls.stderr
    assert "initialized already" not in calls.stderr
    assert calls.stderr.count("no rank is known") == 1  # the driver, which was given none
