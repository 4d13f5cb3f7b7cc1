"""Whose a profile is: the process of the run that it was recorded in."""

from __future__ import annotations

import re
from typing import NamedTuple

from nemo_lens.api.semconv import HOST_NAME, NV_DL_RANK, NV_DL_ROLE, PROCESS_PID, SERVICE_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

# rank3.json, trace_rank_3.pt.trace.json.gz, rank-3/host_17.1234.pt.trace.json
_RANK_IN_NAME = re.compile(r"(?<![a-z])rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)


class Identity(NamedTuple):
    """What a profile says about the process it was recorded in; None and empty for what it does not say."""

    rank: int | None
    host: str
    pid: int | None
    path: Path


class Candidate(NamedTuple):
    """A process that has spans, and the share of the profile's time in nanoseconds in which it had them."""

    number: int
    resource: Mapping[str, object]
    overlap_ns: int


def identity_of(header: Mapping[str, Any], host_pid: int | None, path: Path) -> Identity:
    """Return the identity from the facts that a profile begins with (``distributedInfo``, ``host_name``)."""
    about = header.get("distributedInfo")
    rank = about.get("rank") if isinstance(about, dict) else None
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
        rank = None
    host = header.get("host_name")
    return Identity(rank, host if isinstance(host, str) else "", host_pid, path)


def rank_in_name(path: Path) -> int | None:
    """Return the rank that the name of a file says, or else that of the folder it is in."""
    for name in (path.name, path.parent.name):
        found = _RANK_IN_NAME.search(name)
        if found:
            return int(found[1])
    return None


def owner(identity: Identity, candidates: Iterable[Candidate]) -> int | None:
    """Return the number of the process that a profile belongs to, None when it is none of them.

    The rank that ``torch.distributed`` had decides, then process id and host, then the rank in the file's name. Several
    processes have the rank of a trainer, such as the workers that load its data: with another process id it is none.
    """
    known = list(candidates)
    same = [candidate for candidate in known if _is_same_process(identity, candidate.resource)]
    if identity.rank is not None:
        without_rank = [candidate for candidate in same if NV_DL_RANK not in candidate.resource]
        return _best(identity, _of_rank(identity.rank, identity, known) or without_rank)
    return _best(identity, same or _of_rank(rank_in_name(identity.path), identity, known))


def resource_of(identity: Identity) -> dict[str, object]:
    """Return the resource of a process of which there is nothing but the profile."""
    rank = identity.rank if identity.rank is not None else rank_in_name(identity.path)
    resource: dict[str, object] = {SERVICE_NAME: identity.path.name} if rank is None else {NV_DL_RANK: rank}
    if identity.host:
        resource[HOST_NAME] = identity.host
    if identity.pid is not None:
        resource[PROCESS_PID] = identity.pid
    return resource


def _of_rank(rank: int | None, identity: Identity, candidates: list[Candidate]) -> list[Candidate]:
    if rank is None:
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.resource.get(NV_DL_RANK) == rank
        and (identity.pid is None or candidate.resource.get(PROCESS_PID, identity.pid) == identity.pid)
    ]


def _is_same_process(identity: Identity, resource: Mapping[str, object]) -> bool:
    if identity.pid is None or resource.get(PROCESS_PID) != identity.pid:
        return False
    # The profiler's TensorBoard files are named HOST_PID.TIME.pt.trace.json.
    worker = re.match(r"(.+)_\d+\.\d+\.pt\.trace\.json", identity.path.name)
    ours = identity.host or (worker[1] if worker else "")
    theirs = str(resource.get(HOST_NAME, ""))
    return not ours or not theirs or ours.split(".")[0] == theirs.split(".")[0]


def _best(identity: Identity, candidates: list[Candidate]) -> int | None:
    def fit(candidate: Candidate) -> tuple[object, ...]:
        resource = candidate.resource
        return (
            resource.get(PROCESS_PID) == identity.pid,
            resource.get(HOST_NAME) == identity.host,
            str(resource.get(NV_DL_ROLE, "trainer")) == "trainer",
            candidate.overlap_ns,
            -candidate.number,
        )

    return max(candidates, key=fit).number if candidates else None
