"""The real Collector and the real metrics database."""

from __future__ import annotations

from support.peer_fixtures import collector, database, running

__all__ = ["collector", "database", "running"]
