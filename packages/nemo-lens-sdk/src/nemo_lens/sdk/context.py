"""Restoring the current context without an error log."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import detach

from nemo_lens.api._diagnostics import debug_once


def restore_context(token: Any) -> None:
    """Undo ``opentelemetry.context.attach``; do nothing when the token belongs to another context.

    The variable is reset here and not by ``opentelemetry.context.detach``, which logs an error for a token of another
    context, as a span held over ``yield`` makes it (opentelemetry-python 2606).
    """
    try:
        reset = token.var.reset
    except AttributeError:
        detach(token)  # a context of the user's own, chosen by OTEL_PYTHON_CONTEXT
        return
    try:
        reset(token)
    except (ValueError, RuntimeError) as fault:
        debug_once("foreign context", "a span ended in another context than it started in: %s", fault)
