"""Ray Client under a real Ray: the job runs, the context goes by dispatch, and what is not there is said once."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray_runs import PROGRAMS, Finished, needs_ray, ray_run

pytestmark = [needs_ray, pytest.mark.timeout(180), pytest.mark.xdist_group("ray client")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the program once for all tests here; its configuration is in the code alone."""
    folder: Path = tmp_path_factory.mktemp("client")
    spans = str(folder / "{signal}-{pid}.jsonl")
    return ray_run("client", folder, {"NEMO_LENS_ENABLED": "", "SPANS": spans, "PYTHONPATH": str(PROGRAMS)})


def test_the_job_runs_and_its_workers_get_the_variables(client: Finished) -> None:
    """Switched on by ``instrument`` or by hand; run id and all come from what is live at the client."""
    assert client.facts["warm"] == [True, "of the client", None]
    assert client.facts["hand"][1:] == ["of the client", "1"]


def test_that_there_are_no_hooks_is_said_once(client: Finished) -> None:
    """The WARNING says what to call instead."""
    assert client.stderr.count("Ray Client starts no set-up hook") == 1


def test_the_context_goes_by_dispatch(client: Finished) -> None:
    """To functions, methods, constructors and their options, made before the connection or after; not to others."""
    facts = client.facts
    assert [facts[name] for name in ("add", "options", "double", "plain")] == [11, 12, 8, []]
    assert (facts["double_options"], facts["late"]) == (8, 40)
    assert client.parents("double") == ["function", "function's options", "function, connected"]
    assert client.parents("made") == ["maker", "maker, connected"]
    parents = {span["attributes"]["x"]: client.parent(span) for span in client.spans("add")}
    assert parents == {1: "method", 2: "options", 0: "launch", 3: "by hand", 4: "launch"}


def test_an_actor_is_flushed_by_its_clients_handle(client: Finished) -> None:
    """One or a list of them; False when the connection is closed."""
    assert (client.facts["one"], client.facts["list"], client.facts["shut"]) == (True, True, False)
