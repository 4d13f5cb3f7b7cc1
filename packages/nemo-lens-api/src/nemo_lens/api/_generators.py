"""The wrappers of generators: a span open from the first step to the end, current only while the generator runs.

At each ``yield`` the caller's context is restored and the generator's kept, with the spans and the scopes of attributes
that its body has open, for the next step.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any

    from nemo_lens.api._live import LiveSpan

    # Returns the span of a call, None while its group is off.
    OpenLive = Callable[[tuple[Any, ...], dict[str, Any]], LiveSpan | None]


def generator_wrapper(fn: Any, open_live: OpenLive) -> Any:
    """Wrap a generator function; ``send``, ``throw``, ``close`` and the return value pass through."""

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        live = open_live(args, kwargs)
        if live is None:
            return (yield from fn(*args, **kwargs))
        return (yield from _drive(live, lambda: fn(*args, **kwargs)))

    return wrapper


def _drive(live: LiveSpan, make: Callable[[], Any]) -> Generator[Any, Any, Any]:
    live.start()
    error: BaseException | None = None
    try:
        resumed = live.resume()
        try:
            generator = make()
            item = next(generator)
        except StopIteration as stop:
            return stop.value
        finally:
            held = live.suspend(resumed)
        while True:
            sent: Any = None
            thrown: BaseException | None = None
            try:
                sent = yield item
            except GeneratorExit:
                resumed = live.resume(held)
                try:
                    generator.close()
                finally:
                    live.suspend(resumed)
                raise
            except BaseException as raised:  # noqa: BLE001 - handed to the wrapped generator, as throw means it
                thrown = raised
            resumed = live.resume(held)
            try:
                item = generator.send(sent) if thrown is None else generator.throw(thrown)
            except StopIteration as stop:
                return stop.value
            finally:
                thrown = None
                held = live.suspend(resumed)
    except BaseException as raised:
        error = raised
        raise
    finally:
        live.finish(error)
        error = None  # a frame that holds its own exception is a reference cycle


def async_generator_wrapper(fn: Any, open_live: OpenLive) -> Any:
    """Wrap an asynchronous generator function; ``asend``, ``athrow`` and ``aclose`` pass through."""

    # Asynchronous generators have no ``yield from``, so this loop drives the wrapped one with and without a span.
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        live = open_live(args, kwargs)
        error: BaseException | None = None
        resumed: Any = None
        held: Any = None
        if live is not None:
            live.start()
        try:
            if live is not None:
                resumed = live.resume()
            try:
                generator = fn(*args, **kwargs)
                item = await generator.__anext__()
            except StopAsyncIteration:
                return
            finally:
                if live is not None:
                    held = live.suspend(resumed)
            while True:
                sent: Any = None
                thrown: BaseException | None = None
                try:
                    sent = yield item
                except BaseException as raised:  # noqa: BLE001 - GeneratorExit too: aclose is a throw that must end it
                    thrown = raised
                if live is not None:
                    resumed = live.resume(held)
                try:
                    item = await (generator.asend(sent) if thrown is None else generator.athrow(thrown))
                except StopAsyncIteration:
                    return
                finally:
                    thrown = None
                    if live is not None:
                        held = live.suspend(resumed)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if live is not None:
                live.finish(error)
            error = None  # a frame that holds its own exception is a reference cycle

    return wrapper
