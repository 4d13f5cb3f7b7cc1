"""Makes the process runs of ``tests/process`` importable: the programs here run in the same way."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "process"))
