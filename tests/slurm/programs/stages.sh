#!/bin/bash
# Attributes handed on by both stages of set-slurm-resource-attrs, then by the stage of the tasks alone.
set -e
eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch --container-image "$IMAGE")"
srun bash -c 'eval "$(nemo-lens set-slurm-resource-attrs --stage task)"; exec "$PYTHON" "$PROGRAMS/rank.py" both'

unset OTEL_RESOURCE_ATTRIBUTES
srun bash -c \
    'eval "$(nemo-lens set-slurm-resource-attrs --stage task --container-image "$IMAGE")"; exec "$PYTHON" "$PROGRAMS/rank.py" task'
