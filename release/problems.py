"""What stands in the way of a release, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One reason to refuse a release.

    Args:
        what: what is wrong, with the file or the combination that it was found in.
        remedy: how to put it right.
    """

    what: str
    remedy: str


class ReleaseRefusedError(Exception):
    """The release must not be published as it is."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.what for problem in self.problems))
