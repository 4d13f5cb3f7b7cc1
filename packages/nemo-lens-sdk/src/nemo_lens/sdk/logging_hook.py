"""A callback for every record that ``logging`` has handed to its handlers, by a wrapper around ``Logger.callHandlers``.

The handlers run as they do without it, also when one raises, and the callback comes after them: what it does to a
record is seen by none of them. What others wrap around the same method, before or after, stays.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

_Callback = Callable[[logging.Logger, logging.LogRecord], None]

# The wrapper that counts: one that was thrown out and came back must not call a second time.
_wrapper: Any = None


def install(callback: _Callback) -> None:
    """Call ``callback`` with the logger and the record from now on. Idempotent.

    Args:
        callback: The one callback there is. It must not raise.
    """
    global _wrapper
    top: Any = logging.Logger.callHandlers
    if _wrapper is not None and top is not _wrapper.__wrapped__ and not _is_of_logging(top):
        return  # ours, or somebody's around ours
    _wrapper = _wrapped(top, callback)
    logging.Logger.callHandlers = _wrapper  # type: ignore[method-assign]


def uninstall() -> None:
    """Restore the method, unless somebody has wrapped it since: the wrapper stays then, and the callback is called."""
    global _wrapper
    top: Any = logging.Logger.callHandlers
    if _wrapper is not None and top is _wrapper:
        logging.Logger.callHandlers = _wrapper.__wrapped__  # type: ignore[method-assign]
        _wrapper = None


def _wrapped(original: Any, callback: _Callback) -> Any:
    @functools.wraps(original)
    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
        try:
            original(self, record)
        finally:
            if _wrapper is call_handlers:
                callback(self, record)

    # logging's own report of a handler that fails shows the stack up to the first file outside its folder: by this
    # name inside that folder, it shows what it shows without the wrapper.
    function: Any = call_handlers
    name = Path(logging.__file__).parent / "<nemo_lens.sdk.logging_hook>"
    function.__code__ = function.__code__.replace(co_filename=str(name))
    return function


def _is_of_logging(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == logging.makeLogRecord.__code__.co_filename
