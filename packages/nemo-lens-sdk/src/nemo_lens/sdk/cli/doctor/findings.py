"""What doctor found: a finding is good, a warning or a problem, and says what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

OK, WARNING, PROBLEM = LEVELS = ("ok", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know.

    Args:
        level: ``ok``; ``warning``: telemetry arrives all the same; ``problem``: it would not.
        code: The kind of finding, which stays the same when words change.
        message: What is the case.
        remedy: What to do about it; empty when nothing needs doing.
        signals: The signals concerned; empty when it is not about one.
    """

    level: str
    code: str
    message: str
    remedy: str = ""
    signals: tuple[str, ...] = ()

    def as_object(self) -> dict[str, object]:
        """Return the finding as it stands in the JSON."""
        return {
            "level": self.level,
            "code": self.code,
            "signals": list(self.signals),
            "message": self.message,
            "remedy": self.remedy,
        }


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, good ones first and problems last, with those that differ by their signal alone as one."""
    by_text: dict[Finding, tuple[str, ...]] = {}
    for finding in findings:
        key = replace(finding, signals=())
        known = by_text.get(key, ())
        by_text[key] = (*known, *(signal for signal in finding.signals if signal not in known))
    single = [replace(finding, signals=signals) for finding, signals in by_text.items()]
    return sorted(single, key=lambda finding: LEVELS.index(finding.level))
