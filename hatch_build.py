"""Hatchling hooks shared by the three wheels: one version, exact pins between them, complete source distributions.

Each package folder holds this file, ``VERSION`` and ``LICENSE`` as symbolic links to the ones at the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class VersionHook(MetadataHookInterface):
    """Set ``version`` from ``VERSION``, and ``dependencies`` from the hook's own table with ``{version}`` filled in."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill the dynamic fields of ``metadata`` in place."""
        version = (Path(self.root) / "VERSION").read_text(encoding="utf-8").strip()
        metadata["version"] = version
        if "dependencies" in metadata.get("dynamic", ()):
            metadata["dependencies"] = [line.format(version=version) for line in self.config["dependencies"]]


class SharedFilesHook(BuildHookInterface):  # type: ignore[type-arg]  # the parameter is hatchling's own configuration
    """Put the shared files themselves into a source distribution, where the links would dangle."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Replace each link among the files that hatchling adds by what it points to, and add ``VERSION``."""
        included: dict[str, str] = build_data["force_include"]
        wanted = {**included, str(Path(self.root) / "VERSION"): "VERSION"}
        included.clear()
        included.update({str(Path(source).resolve()): target for source, target in wanted.items()})
