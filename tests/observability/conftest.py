"""The real metrics database."""

from __future__ import annotations

from support.peer_fixtures import database

__all__ = ["database"]
