"""All that doctor found, as one object for a machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from nemo_lens.sdk.cli.doctor.configuration import Configuration
from nemo_lens.sdk.cli.doctor.findings import PROBLEM, Finding
from nemo_lens.sdk.cli.doctor.installation import Installation
from nemo_lens.sdk.cli.doctor.plugins import Plugins
from nemo_lens.sdk.cli.doctor.span_groups import SpanGroups
from nemo_lens.sdk.cli.doctor.surroundings import Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:  # it imports OpenTelemetry, which may be missing
    from nemo_lens.sdk.cli.doctor.endpoints import Endpoints

# Raised when a key of the JSON changes its name or meaning, or goes; new keys may come without that.
SCHEMA_VERSION = 1


@dataclass
class Report:
    """What was found. ``endpoints`` is None when there is no exporter to ask."""

    installation: Installation
    plugins: Plugins
    configuration: Configuration
    span_groups: SpanGroups
    surroundings: Surroundings
    endpoints: Endpoints | None
    findings: list[Finding] = field(default_factory=list)

    @property
    def arrives(self) -> bool:
        """Whether telemetry would arrive."""
        return not self.count(PROBLEM)

    def count(self, level: str) -> int:
        """Return the number of findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    def as_object(self) -> dict[str, object]:
        """Return the report as JSON holds it; docs/command-line.md documents the keys."""
        return {
            "schema_version": SCHEMA_VERSION,
            "arrives": self.arrives,
            "findings": [finding.as_object() for finding in self.findings],
            "endpoints": [] if self.endpoints is None else self.endpoints.as_object(),
            "installation": {**self.installation.as_object(), **self.plugins.as_object()},
            "configuration": self.configuration.as_object(),
            "span_groups": self.span_groups.as_object(),
            "surroundings": self.surroundings.as_object(),
        }
