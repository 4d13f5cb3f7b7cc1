#!/bin/bash
# A process in the batch step itself, and one in a step that inherits what the batch script hands on.
set -e
"$PYTHON" "$PROGRAMS/rank.py" "batch step"
eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch)"
srun "$PYTHON" "$PROGRAMS/rank.py" step
