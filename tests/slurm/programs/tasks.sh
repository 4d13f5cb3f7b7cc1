#!/bin/bash
# A rank in every task.
set -e
srun "$PYTHON" "$PROGRAMS/rank.py" tasks
