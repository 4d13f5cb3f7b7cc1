"""A span that is on: started, made current, ended; faults of the backend never reach the body."""

from __future__ import annotations

from itertools import count

from nemo_lens.api import backend as _cell
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api._outcome import settle
from nemo_lens.api.attributes import clean_attributes, clean_text, cleaned_keywords
from nemo_lens.api.backend import HELPERS_SCOPE
from nemo_lens.api.fallbacks import NULL_SPAN
from nemo_lens.api.scopes import current_scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from nemo_lens.api.backend import Backend

_next_sequence = count(1).__next__


# The keyword options of the typed signatures; any other keyword is a span attribute.
_OPTIONS = frozenset(("attributes", "span_kind", "links", "context"))


def open_span(group: str | None, name: str, tracer: Any, attrs: dict[str, Any], record: bool = True) -> LiveSpan:
    """Return the context manager of a span that is on; the keyword options are taken out of ``attrs``."""
    if tracer is None and record and _OPTIONS.isdisjoint(attrs):
        return LiveSpan(name, attrs)
    explicit = attrs.pop("attributes", None)
    options = {
        "scope": HELPERS_SCOPE,
        "tracer": tracer,
        "kind": attrs.pop("span_kind", None),
        "links": attrs.pop("links", None),
        "context": attrs.pop("context", None),
    }
    return LiveSpan(name, {**clean_attributes(explicit), **attrs} if explicit is not None else attrs, options, record)


class LiveSpan:
    """Context manager of one span, for ``with`` and ``async with``.

    Args:
        name: span name.
        attrs: attributes, not yet cleaned; a dict nobody changes later.
        options: keyword options of ``Backend.start_span``; None for the defaults.
        record: whether an exception is recorded as an event.
    """

    __slots__ = ("_attrs", "_backend", "_name", "_options", "_outer", "_record", "_sequence", "_span", "_token")

    def __init__(
        self, name: str, attrs: dict[str, Any] | None, options: dict[str, Any] | None = None, record: bool = True
    ) -> None:
        self._name = name
        self._attrs = attrs
        self._options = options
        self._record = record
        self._span: Any = None
        # What this object had open when it was entered again, as a nullcontext may be.
        self._outer: tuple[Any, ...] | None = None

    def start(self) -> Any:
        """Start the span without making it current; return it, or the null span when the backend fails."""
        self._backend: Backend = _cell.current
        backend = self._backend
        self._sequence = _next_sequence()
        self._span = NULL_SPAN
        if backend is _cell.NOOP_BACKEND:
            return NULL_SPAN
        try:
            attrs = self._attrs
            if attrs:
                attrs = cleaned_keywords(attrs)
            scoped = current_scope.get()
            if scoped:
                attrs = {**scoped, **attrs} if attrs else dict(scoped)
            name = self._name
            if type(name) is not str or len(name) > 256 or not name.isascii():
                name = clean_text(name)
            options = self._options
            self._span = backend.start_span(name, attrs, **options) if options else backend.start_span(name, attrs)
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not reach the body
            _fault("start", fault)
        return self._span

    def resume(self, held: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Make current what ``suspend`` returned, at first the span; return what ``suspend`` takes to undo that."""
        outer_scope = current_scope.get()
        token = None
        if self._span is not NULL_SPAN:
            try:
                inner = None if held is None else held[0]
                token = self._backend.activate(self._span) if inner is None else self._backend.resume(inner)
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("activate", fault)
        if held is not None and held[1] is not outer_scope:
            current_scope.set(held[1])
        return token, outer_scope

    def suspend(self, resumed: tuple[Any, Any]) -> tuple[Any, Any]:
        """Restore what was current before; return what was current until now, with what the body has open."""
        token, outer_scope = resumed
        inner, inner_scope = None, current_scope.get()
        if token is not None:
            try:
                inner = self._backend.suspend(token)
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("suspend", fault)
        if inner_scope is not outer_scope:
            current_scope.set(outer_scope)
        return inner, inner_scope

    def finish(self, error: BaseException | None) -> None:
        """End the span, with what ``error`` leaves on it."""
        span = self._span
        if span is NULL_SPAN or not self._is_recording():
            return
        try:
            if error is not None:
                settle(self._backend, span, self._sequence, error, self._record)
        except Exception as fault:  # noqa: BLE001 - as above
            _fault("record the outcome of", fault)
        finally:
            # Also when a signal handler raises in the middle of formatting a long traceback.
            try:
                span.end()
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("end", fault)

    def _is_recording(self) -> bool:
        # A shutdown in the meantime has ended it; OpenTelemetry would log that at WARNING.
        try:
            return bool(self._span.is_recording())
        except Exception as fault:  # noqa: BLE001 - as above
            _fault("look at", fault)
            return True

    # What follows says resume, suspend and finish again, in place: each call would add 60 ns to every span.

    def __enter__(self) -> Any:
        if self._span is not None:
            self._outer = (self._span, self._token, self._sequence, self._backend, self._outer)
        span = self.start()
        self._token: Any = None
        if span is not NULL_SPAN:
            try:
                self._token = self._backend.activate(span)
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("activate", fault)
        return span

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        token = self._token
        if token is not None:
            try:
                self._backend.deactivate(token)
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("deactivate", fault)
        if error is None:
            try:
                # A shutdown in the meantime has ended it; OpenTelemetry would log that at WARNING.
                if self._span.is_recording():
                    self._span.end()
            except Exception as fault:  # noqa: BLE001 - as above
                _fault("end", fault)
        else:
            self.finish(error)
        if self._outer is None:
            self._span = None
        else:
            self._span, self._token, self._sequence, self._backend, self._outer = self._outer

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, error, tb)


def _fault(doing: str, fault: Exception) -> None:
    debug_once(("span", doing, type(fault)), "could not %s a span: %r", doing, fault, exc_info=True)
