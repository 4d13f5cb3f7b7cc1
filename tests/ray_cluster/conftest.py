"""Puts this folder on the path for ``ray_runs``. It is not named ``ray``, since ``tests`` is on the path too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
