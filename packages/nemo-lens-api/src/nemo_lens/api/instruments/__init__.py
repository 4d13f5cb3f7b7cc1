"""Metrics by group and key: declare them once, record them through any meter.

The groups ``inference``, ``rl``, ``gym`` and ``training`` are registered when this package is imported.
"""

from __future__ import annotations

from nemo_lens.api.instruments import gym, inference, rl, training
from nemo_lens.api.instruments.gym import record_gym_metrics
from nemo_lens.api.instruments.inference import record_inference_metrics
from nemo_lens.api.instruments.recording import create_metric_instruments, record_metrics
from nemo_lens.api.instruments.registry import (
    register_metric_group,
    registered_metric_groups,
    unregister_metric_group,
)
from nemo_lens.api.instruments.rl import record_rl_metrics
from nemo_lens.api.instruments.spec import MetricSpec
from nemo_lens.api.instruments.training import record_training_metrics

__all__ = [
    "MetricSpec",
    "create_metric_instruments",
    "record_gym_metrics",
    "record_inference_metrics",
    "record_metrics",
    "record_rl_metrics",
    "record_training_metrics",
    "register_metric_group",
    "registered_metric_groups",
    "unregister_metric_group",
]

for _shipped in (inference, rl, gym, training):
    register_metric_group(_shipped.GROUP, _shipped.SPECS)
