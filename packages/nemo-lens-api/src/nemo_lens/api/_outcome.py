"""What an exception has to say, and leaves on the span it passes through: event, status, mark of an interruption."""

from __future__ import annotations

import traceback

from nemo_lens.api.attributes import clean_text, text_limit
from nemo_lens.api.semconv import NEMO_SPAN_INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from nemo_lens.api.backend import Backend

# The exceptions recorded last, by id and trace: the sequence number of the span that recorded it, and where it came
# from as the length and hash of its path. No reference to the exception: that would keep its frames, and the tensors
# in them, alive. One table for the process, since an exception leaves its task (wait_for) and its thread (a future).
_recorded: dict[tuple[int, int], tuple[int, int, int]] = {}
_MAX_RECORDED = 256


def settle(backend: Backend, span: Any, sequence: int, error: BaseException, record: bool = True) -> None:
    """Leave on ``span`` what ``error``, on its way out of it, has to say.

    An ``Exception`` is recorded once as an event, on the innermost span, and sets ERROR on each. Cancellation,
    Ctrl-C and a non-zero exit set ``nemo.span.interrupted``; a closed generator and a clean exit set nothing.

    Args:
        backend: backend the span belongs to.
        span: the span, still open.
        sequence: the span's sequence number: smaller for enclosing spans.
        error: the exception.
        record: whether to record the event.
    """
    if isinstance(error, Exception):
        # First, so that it is there also when the event fails.
        backend.set_error(span, describe(error))
        key = (id(error), span.get_span_context().trace_id)
        path = _path(error.__traceback__)
        if record and not _already_recorded(key, sequence, path):
            _record(span, error)
            if len(_recorded) >= _MAX_RECORDED:
                _recorded.clear()
            _recorded[key] = (sequence, len(path), hash(path))
    elif not isinstance(error, GeneratorExit) and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        span.set_attribute(NEMO_SPAN_INTERRUPTED, type(error).__name__)


def describe(error: BaseException) -> str:
    """Return ``Type: message`` whatever the exception's ``__str__`` does."""
    return clean_text(f"{type(error).__name__}: {_message(error)}")


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ must not replace the user's exception
        return "<no message: its __str__ failed>"


def exception_attributes(error: BaseException) -> dict[str, str]:
    """Return what the conventions say of an exception, on spans and log records alike, whatever its ``__str__`` does.

    Follows the OpenTelemetry semantic conventions for exceptions: qualified type, message, stack trace.
    """
    kind = type(error)
    try:
        stack = "".join(traceback.format_exception(kind, error, error.__traceback__))
    except Exception:  # noqa: BLE001 - formatting calls user code (__str__, __notes__)
        stack = describe(error)
    return {
        "exception.type": type_of(kind),
        "exception.message": clean_text(_message(error)),
        "exception.stacktrace": end_of(stack),
    }


def type_of(kind: type) -> str:
    """Return the qualified name of an exception's type; without its module when that is ``builtins``."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def end_of(stack: str) -> str:
    """Return a stack trace as it is sent: when it is too long, its end, which says more than its beginning."""
    return clean_text(stack[-text_limit() :])


def _record(span: Any, error: BaseException) -> None:
    span.add_event("exception", {**exception_attributes(error), "exception.escaped": "True"})


def _already_recorded(key: tuple[int, int], sequence: int, path: tuple[tuple[int, int], ...]) -> bool:
    last = _recorded.get(key)
    if last is None:
        return False
    recorder, length, digest = last
    # An id can be reused once its exception is gone. It is the same one only if an inner span recorded it and its
    # traceback still ends with the path it had there.
    return sequence < recorder and len(path) >= length and hash(path[len(path) - length :]) == digest


def _path(tb: TracebackType | None) -> tuple[tuple[int, int], ...]:
    steps = []
    while tb is not None:
        steps.append((id(tb.tb_frame.f_code), tb.tb_lasti))
        tb = tb.tb_next
    return tuple(steps)
