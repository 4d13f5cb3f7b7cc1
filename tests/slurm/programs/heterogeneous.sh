#!/bin/bash
# Both components of the job in one step, each in a step of its own, a program for each in one step; then what the batch
# script hands on, to the second component and through the tasks of both.
set -e
srun --het-group=0,1 "$PYTHON" "$PROGRAMS/rank.py" both
srun --het-group=0 "$PYTHON" "$PROGRAMS/rank.py" first
srun --het-group=1 "$PYTHON" "$PROGRAMS/rank.py" second
srun --het-group=0 "$PYTHON" "$PROGRAMS/rank.py" "program 0" : --het-group=1 "$PYTHON" "$PROGRAMS/rank.py" "program 1"

eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch)"
srun --het-group=1 "$PYTHON" "$PROGRAMS/rank.py" "second, handed on"
srun --het-group=0,1 bash -c \
    'eval "$(nemo-lens set-slurm-resource-attrs --stage task)"; exec "$PYTHON" "$PROGRAMS/rank.py" "both, handed on"'
