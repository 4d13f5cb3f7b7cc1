#!/bin/bash
# A launcher in the batch step that starts a rank in every task.
set -e
"$PYTHON" "$PROGRAMS/launcher.py" srun "$PYTHON" "$PROGRAMS/rank.py" launched
