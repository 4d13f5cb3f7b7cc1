"""The questions that doctor asks of the network, each for a bounded time and none twice."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from nemo_lens.sdk.cli.doctor.answers import Answer
from nemo_lens.sdk.cli.doctor.empty_export import export_nothing
from nemo_lens.sdk.cli.doctor.in_time import in_time
from nemo_lens.sdk.cli.doctor.listener import Listener, Reached, listen, reach
from nemo_lens.sdk.cli.doctor.targets import Target
from nemo_lens.sdk.exporters import ExporterPlan, Signal, metric_preferences, otlp

# What a thread may take on top of the timeout of what it waits for.
_SLACK_S = 1.0
# A listener that is alive says something at once.
_MAX_LISTEN_S = 1.0


class Probe:
    """Asks, with one timeout for each step.

    Args:
        environ: The environment the exporters read.
        timeout_s: Seconds for name resolution, for a connection, and for an answer.
    """

    def __init__(self, environ: Mapping[str, str], timeout_s: float) -> None:
        self.environ = environ
        self.timeout_s = timeout_s
        self._reached: dict[Target, Reached] = {}
        self._listeners: dict[tuple[Target, str], Listener] = {}
        self._tries: dict[tuple[str, Signal, str], Answer | None] = {}

    def reach(self, *targets: Target) -> list[Reached]:
        """Return whether each of the targets can be connected to."""
        new = [target for target in dict.fromkeys(targets) if target not in self._reached]
        hosts = {target.host for target in new}
        names = in_time({host: partial(_resolve, host) for host in hosts}, self.timeout_s)
        silent = Reached("name_not_resolved", f"no answer from the name server within {self.timeout_s * 1000:.0f} ms")
        self._reached.update({target: names.get(target.host, silent) for target in new})
        known = [target for target in new if not self._reached[target].failure]
        calls = {target: partial(reach, target, self.timeout_s) for target in known}
        late = Reached("unreachable", f"no answer within {self.timeout_s * 1000:.0f} ms")
        found = in_time(calls, self.timeout_s + _SLACK_S)
        self._reached.update({target: found.get(target, late) for target in known})
        return [self._reached[target] for target in targets]

    def export(self, plans: Mapping[Signal, ExporterPlan]) -> dict[Signal, Answer]:
        """Return the answers to empty exports, sent at once."""
        calls = {signal: partial(export_nothing, plan, signal, self.timeout_s) for signal, plan in plans.items()}
        found = in_time(calls, self.timeout_s + _SLACK_S)
        return {signal: found.get(signal, Answer("timeout")) for signal in plans}

    def listener(self, target: Target, authorities: str) -> Listener:
        """Return what listens there."""
        key = (target, authorities)
        if key not in self._listeners:
            self._listeners[key] = listen(target, min(self.timeout_s, _MAX_LISTEN_S), authorities)
        return self._listeners[key]

    def attempt(self, signal: Signal, transport: str, endpoint: str) -> Answer | None:
        """Export nothing to another endpoint or over another transport; None when nothing can be tried.

        Args:
            signal: The signal.
            transport: ``grpc`` or ``http/protobuf``.
            endpoint: For HTTP with its path.
        """
        key = (transport, signal, endpoint)
        if key not in self._tries:
            self._tries[key] = self._attempt(signal, transport, endpoint)
        return self._tries[key]

    def _attempt(self, signal: Signal, transport: str, endpoint: str) -> Answer | None:
        start = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
        settings = {f"{start}_PROTOCOL": transport, f"{start}_ENDPOINT": endpoint, f"{start}_COMPRESSION": "none"}
        try:
            plan = otlp.plan(signal, {**self.environ, **settings}, metric_preferences({}))
        except ValueError:  # settings of that transport that would have to be mended first
            return None
        if plan.build is not None and transport == "grpc":
            plan = replace(plan, build=partial(plan.build, insecure=urlsplit(endpoint).scheme != "https"))
        return self.export({signal: plan})[signal]


def _resolve(host: str) -> Reached:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as fault:
        return Reached("name_not_resolved", fault.strerror or str(fault))
    except (OSError, ValueError) as fault:  # UnicodeError: a label that is empty or too long
        return Reached("name_not_resolved", str(fault))
    return Reached()
