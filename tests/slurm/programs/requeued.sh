#!/bin/bash
# The run's UUID said by the program, then handed on by the batch script; the first attempt then waits to be requeued.
set -e
srun "$PYTHON" "$PROGRAMS/rank.py" own --run-uuid
eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch)"
srun "$PYTHON" "$PROGRAMS/rank.py" inherited
if [[ -z $SLURM_RESTART_COUNT ]]; then
    touch first-attempt-done
    sleep 120
fi
