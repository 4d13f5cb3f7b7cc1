"""The set-up hook that Ray runs in each worker process, as it must be to get there."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from nemo_lens.api import SpanRegistry
from nemo_lens.api._diagnostics import warn_once


class WorkerHook(str):
    """The set-up hook: called in a worker, it sets telemetry up and then calls the user's own.

    It is text too, since Ray Client and ``ray job submit`` write a runtime environment as JSON: the user's, else the
    name of ``setup_worker``.
    """

    __name__ = "set_up_worker"  # what Ray shows
    _own: Callable[[], Any] | str | None
    _declared: Mapping[str, Any]

    def __new__(cls, own: Callable[[], Any] | str | None) -> WorkerHook:
        """Take the user's hook, and the span groups that are registered here."""
        hook = super().__new__(cls, own if isinstance(own, str) else "nemo_lens.contrib.ray.setup_worker")
        hook._own = own
        hook._declared = {
            namespace: (sorted(SpanRegistry.groups(namespace)), SpanRegistry.presets(namespace))
            for namespace in SpanRegistry.namespaces()
        }
        return hook

    def __call__(self) -> None:
        _function(self._own, self._declared)()

    def __reduce__(self) -> Any:
        """Leave nothing of this package to import: a worker with a Python environment of its own may lack it."""
        if _ray_client_connects():  # without cloudpickle, which the rest needs
            warn_once(
                "ray client",
                "Ray Client starts no set-up hook, so its workers have the variables but no telemetry until they call "
                "nemo_lens.contrib.ray.setup_worker(); the trace context goes along by ray_dispatch_with_context",
            )
            return str, (str(self),)
        function: Any = functools.partial(_function(self._own, self._declared))
        function.__name__ = self.__name__
        return function.__reduce__()


def _ray_client_connects() -> bool:
    client = getattr(sys.modules.get("ray.util.client"), "ray", None)
    return client is not None and bool(client.is_connected())


def _function(own: Callable[[], Any] | str | None, declared: Mapping[str, Any]) -> Callable[[], None]:
    # A function inside a function: cloudpickle takes it by value.
    def set_up_worker() -> None:
        try:
            from nemo_lens.contrib.ray._workers import adopt_span_groups, setup_worker
        except ImportError as fault:
            import logging

            logging.getLogger("nemo_lens").warning("telemetry is off in a Ray worker: %s", fault)
        else:
            adopt_span_groups(declared)
            setup_worker()
        if isinstance(own, str):
            module, _, name = own.rpartition(".")
            getattr(importlib.import_module(module), name)()
        elif own is not None:
            own()

    return set_up_worker
