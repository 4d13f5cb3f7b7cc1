"""Lines of the standard library's ``logging``, and what a receiver should hold of each then."""

from __future__ import annotations

import logging
from typing import Any

NAME = "receivers.lines"

# body -> severity, its text, whether it was logged inside the span, attributes beside those of the place in the code.
EXPECTED: dict[str, tuple[int, str, bool, dict[str, Any]]] = {
    "epoch 3 done": (9, "INFO", True, {"epoch": 3, "loss": 0.25, "tags": ["a", "b"], "api_key": "[REDACTED]"}),
    "step failed: größe": (
        17,
        "ERROR",
        True,
        {"exception.type": "ValueError", "exception.message": "loss is not finite"},
    ),
    "out of every span": (13, "WARN", False, {}),
}


def log_inside_a_span() -> None:
    """Log with extra fields, an exception, and below the logger's level."""
    logger = logging.getLogger(NAME)
    logger.setLevel(logging.INFO)
    logger.info(
        "epoch %d done", 3, extra={"epoch": 3, "loss": 0.25, "tags": ["a", "b"], "api_key": "sk-1234", "none": None}
    )
    try:
        raise ValueError("loss is not finite")
    except ValueError:
        logger.exception("step failed: %s", "größe")
    logger.debug("below the level")


def log_outside() -> None:
    """Log where there is no span."""
    logging.getLogger(NAME).warning("out of every span")
