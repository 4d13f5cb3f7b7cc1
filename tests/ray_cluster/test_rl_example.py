"""The reinforcement-learning example: driver, two actors and a web service in one trace, at a real OTLP receiver."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ray_runs import needs_ray, ray_run

from support.otlp_decode import Record

needs_web = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("fastapi", "aiohttp", "uvicorn")),
    reason="FastAPI, aiohttp or uvicorn is not installed: run `nox -s ray`",
)
pytestmark = [needs_ray, needs_web, pytest.mark.timeout(180)]
STEPS = 12
SERVER, CLIENT, CONSUMER = 2, 3, 5


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], dict[str, Any], str]:
    """Run the example once: the spans that the receiver got, what was printed, and stderr."""
    received = tmp_path_factory.mktemp("rl") / "received.json"
    run = ray_run("rl_example", received.parent, {"RECEIVED": str(received), "STEPS": str(STEPS)})
    spans: list[Record] = json.loads(Path(received).read_text(encoding="utf-8"))
    return spans, run.facts, run.stderr


def test_driver_actors_and_service_form_one_trace(example: tuple[list[Record], dict[str, Any], str]) -> None:
    """Every span is of the one trace, under the parent that it has in the program, from the process that it is of."""
    spans, _, _ = example
    assert len({span["trace_id"] for span in spans}) == 1
    names = {span["span_id"]: span["name"] for span in spans}
    edges = Counter((names.get(span["parent_id"]), span["name"]) for span in spans)
    assert edges == {
        (None, "train"): 1,
        ("train", "step"): STEPS,
        ("step", "update"): STEPS,
        ("step", "RolloutWorker.rollout"): 2 * STEPS,
        ("RolloutWorker.rollout", "POST"): 2 * STEPS,
        ("POST", "POST /score"): 2 * STEPS,
        ("POST /score", "score"): 2 * STEPS,
    }


def test_each_span_comes_from_its_process(example: tuple[list[Record], dict[str, Any], str]) -> None:
    """One driver, two actor processes with as many rollouts each, one service: four processes of one run."""
    spans, _, _ = example
    places: dict[str, Counter[int]] = {}
    for span in spans:
        places.setdefault(span["name"], Counter())[span["resource"]["process.pid"]] += 1
    driver, actors, service = places["train"].keys(), places["RolloutWorker.rollout"], places["score"].keys()
    assert [len(driver), sorted(actors.values()), len(service)] == [1, [STEPS, STEPS], 1]
    assert len(driver | actors.keys() | service) == 4
    assert places["POST"] == actors
    assert places["POST /score"].keys() == service
    assert places["step"].keys() == places["update"].keys() == driver
    assert len({span["resource"]["nemo.run.id"] for span in spans}) == 1
    names = {span["resource"]["service.name"] for span in spans if span["name"] == "score"}
    assert names == {"reward-service"}
    kinds = {span["name"]: span["kind"] for span in spans}
    assert (kinds["RolloutWorker.rollout"], kinds["POST"], kinds["POST /score"]) == (CONSUMER, CLIENT, SERVER)


def test_a_child_lies_within_its_parent(example: tuple[list[Record], dict[str, Any], str]) -> None:
    """On one machine with one clock, no span begins before its parent or ends after it."""
    spans, _, _ = example
    by_id = {span["span_id"]: span for span in spans}
    for span in spans:
        if span["parent_id"] and span["kind"] != SERVER:  # a server's span ends once its answer is out
            parent = by_id[span["parent_id"]]
            assert parent["start"] <= span["start"] <= span["end"] <= parent["end"], span["name"]


def test_the_example_learns(example: tuple[list[Record], dict[str, Any], str]) -> None:
    """It is real training: the rewards rise, and each step's span has what was printed."""
    spans, facts, _ = example
    curve = facts["curve"]
    assert len(curve) == STEPS
    assert sum(curve[-3:]) > sum(curve[:3])
    steps = sorted(
        (span["attributes"]["dl.iteration"], span["attributes"]["rl.reward"])
        for span in spans
        if span["name"] == "step"
    )
    assert [round(reward, 2) for _, reward in steps] == curve


def test_the_example_that_fails_leaves_no_service_behind(tmp_path: Path) -> None:
    """Where Ray refuses to start, its error comes out and the service has been stopped."""
    facts = ray_run("rl_example_fails", tmp_path, {"RAY_ADDRESS": "127.0.0.1:1"}).facts
    assert "num_cpus" in facts["fault"]
    assert facts["left"] is None
