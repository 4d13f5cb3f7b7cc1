"""``python -m nemo_lens.sdk.cli``, the same as ``nemo-lens``."""

from __future__ import annotations

import sys

from nemo_lens.sdk.cli import main

if __name__ == "__main__":  # a spawned worker of the demo imports this module again
    sys.exit(main())
