"""Each signal's way out: exporter, endpoint and protocol, and whether an empty export arrives there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_lens.sdk.cli.doctor.configuration import Configuration
from nemo_lens.sdk.cli.doctor.diagnosis import DEFAULT_PORTS, SIGNALS, Attempt, diagnose, suggestion, variable
from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.probe import Probe
from nemo_lens.sdk.cli.doctor.redaction import REDACTED, Secrets, header_pairs, shown_address
from nemo_lens.sdk.cli.doctor.targets import Target, proxy_of, target_of
from nemo_lens.sdk.cli.doctor.verdicts import Verdict
from nemo_lens.sdk.exporters import ExporterPlan, Signal, file_names, plan_exporter
from nemo_lens.sdk.exporters.otlp import setting
from nemo_lens.sdk.settings import grpc_fork_support

_MIB = 1024 * 1024
_LITTLE_BYTES = 64 * _MIB


@dataclass
class Way:
    """A signal's way out.

    Args:
        outcome: ``off`` (the signal is), ``bad_setting``, ``writable``, ``console``, ``plugin``, or a code of
            ``verdicts.TEXTS``.
    """

    signal: Signal
    outcome: str = "off"
    exporter: str = ""
    transport: str = ""
    transport_origin: str = ""
    endpoint: str = ""
    endpoint_origin: str = ""
    headers: list[str] = field(default_factory=list)
    proxy: str = ""
    detail: str = ""
    milliseconds: float | None = None

    def as_object(self) -> dict[str, object]:
        """Return the way as it stands in the JSON."""
        return {
            "signal": self.signal,
            "outcome": self.outcome,
            "exporter": self.exporter or None,
            "transport": self.transport or None,
            "transport_origin": self.transport_origin or None,
            "endpoint": self.endpoint or None,
            "endpoint_origin": self.endpoint_origin or None,
            "headers": dict.fromkeys(self.headers, REDACTED),
            "proxy": self.proxy or None,
            "detail": self.detail or None,
            "round_trip_ms": None if self.milliseconds is None else round(self.milliseconds, 1),
        }


@dataclass
class Endpoints:
    """The ways of the three signals."""

    ways: list[Way]
    findings: list[Finding] = field(default_factory=list)

    def as_object(self) -> list[dict[str, object]]:
        """Return the section as it stands in the JSON."""
        return [way.as_object() for way in self.ways]


def look(
    settings: Configuration,
    environ: Mapping[str, str],
    run_id: str,
    rank: int | None,
    timeout_ms: int,
    secrets: Secrets,
) -> Endpoints:
    """Plan each signal's exporter as set-up does, and try it.

    Args:
        settings: The settings.
        environ: The environment; exporters read ``os.environ``.
        run_id: The run id, for file names.
        rank: The rank, for file names.
        timeout_ms: Milliseconds for each step of a try.
        secrets: What must not be shown.
    """
    config = settings.config
    found = Endpoints([])
    probe = Probe(environ, timeout_ms / 1000)
    plans: dict[Signal, ExporterPlan] = {}
    for signal in SIGNALS:
        way = Way(signal)
        found.ways.append(way)
        if not getattr(config, f"{signal}_enabled"):
            continue
        way.exporter = config.exporter
        try:
            plan = plan_exporter(signal, config, run_id=run_id, rank=rank)
        except ValueError as fault:
            way.outcome, way.detail = "bad_setting", secrets.scrub(str(fault))
            remedy = "correct it: set-up raises ValueError as it is"
            found.findings.append(Finding(PROBLEM, "bad_setting", way.detail, remedy, (signal,)))
            continue
        way.exporter, way.transport = plan.name, plan.transport
        if plan.build is None:
            found.findings += _without_network(way, plan, settings, run_id, rank)
        else:
            plans[signal] = plan
    over_network = [way for way in found.ways if way.signal in plans]
    found.findings += _over_network(over_network, plans, probe, settings, secrets)
    found.findings += _fork_support(plans, environ)
    return found


def _without_network(
    way: Way, plan: ExporterPlan, settings: Configuration, run_id: str, rank: int | None
) -> list[Finding]:
    config = settings.config
    way.transport_origin = config.sources["exporter"]
    if plan.name == "console":
        way.outcome = way.endpoint = "console"
        return [Finding(OK, "console", "printed on standard output, an object a line", signals=(way.signal,))]
    if plan.name != "file":
        way.outcome = "plugin"
        text = f"the exporter {plan.name} loads; where it sends, and whether that arrives, is its own matter"
        return [Finding(OK, "plugin", text, signals=(way.signal,))]
    pattern = config.file_path or file_names.DEFAULT_PATTERN
    name_of = file_names.parse(pattern, signal=way.signal, run_id=run_id, rank=rank)
    path = name_of("{pid}", False)
    way.outcome, way.endpoint, way.endpoint_origin = "writable", str(path), config.sources["file_path"]
    space = _little_space(path, way.signal, settings.variable("file_path"))
    if any(finding.level == PROBLEM for finding in space):
        way.outcome = "no_space"
        return space
    return [Finding(OK, "writable", f"{path} can be written", signals=(way.signal,)), *space]


def _little_space(path: Path, signal: Signal, variable: str) -> list[Finding]:
    existing = next(each for each in path.parents if each.is_dir())
    total, _, free = shutil.disk_usage(existing)
    if free >= _LITTLE_BYTES or not total:  # a file system may not say, such as some of FUSE
        return []
    remedy = f"make room, or set {variable} to where there is some"
    if free < _MIB:
        text = f"{existing} is full, with {free // 1024} KiB of space left: what is exported would be lost"
        return [Finding(PROBLEM, "no_space", text, remedy, (signal,))]
    return [Finding(WARNING, "little_space", f"{existing} has {free // _MIB} MiB of space left", remedy, (signal,))]


def _over_network(
    ways: list[Way],
    plans: Mapping[Signal, ExporterPlan],
    probe: Probe,
    settings: Configuration,
    secrets: Secrets,
) -> list[Finding]:
    targets: dict[Signal, Target | None] = {}
    for way in ways:
        plan = plans[way.signal]
        targets[way.signal] = target_of(plan.endpoint, plan.transport)
        _describe(way, plan, targets[way.signal], probe.environ)
    verdicts = _unreached(ways, targets, probe)
    open_ways = [way for way in ways if way.signal not in verdicts]
    answers = probe.export({way.signal: plans[way.signal] for way in open_ways})
    for way in open_ways:
        signal, answer = way.signal, answers[way.signal]
        plan = plans[signal]
        attempt = Attempt(signal, plan.transport, plan.endpoint, targets[signal], way.proxy, answer)
        verdicts[signal] = diagnose(attempt, probe)
        way.milliseconds = answer.milliseconds if answer.kind == "status" else None
    return [
        _finding(
            way, verdicts[way.signal], targets[way.signal], probe, settings.variable(f"{way.signal}_enabled"), secrets
        )
        for way in ways
    ]


def _describe(way: Way, plan: ExporterPlan, target: Target | None, environ: Mapping[str, str]) -> None:
    way.endpoint = shown_address(plan.endpoint)
    way.endpoint_origin = setting(way.signal, environ, "ENDPOINT")[0] or "default"
    way.transport_origin = setting(way.signal, environ, "PROTOCOL")[0] or "default"
    way.headers = [name for name, _ in header_pairs(setting(way.signal, environ, "HEADERS")[1]) if name]
    way.proxy = "" if target is None else proxy_of(plan.endpoint, target, plan.transport, environ)


def _unreached(ways: list[Way], targets: Mapping[Signal, Target | None], probe: Probe) -> dict[Signal, Verdict]:
    """Return the verdicts on the ways that end before anything could be exported."""
    straight = [(way, target) for way in ways if (target := targets[way.signal]) is not None and not way.proxy]
    verdicts: dict[Signal, Verdict] = {}
    for (way, target), reached in zip(straight, probe.reach(*(target for _, target in straight)), strict=True):
        if reached.failure:
            tls = way.endpoint.startswith("https:")
            elsewhere = suggestion(target, way.signal, tls, probe) if reached.failure == "refused" else ""
            verdicts[way.signal] = Verdict(reached.failure, {"detail": reached.detail}, elsewhere)
    return verdicts


def _finding(way: Way, verdict: Verdict, target: Target | None, probe: Probe, switch: str, secrets: Secrets) -> Finding:
    headers = variable(way.signal, "HEADERS", probe)
    endpoint = variable(way.signal, "ENDPOINT", probe)
    insecure = variable(way.signal, "INSECURE", probe)
    facts = {
        "where": str(target) if target is not None else way.endpoint,
        "host": target.host if target is not None else way.endpoint,
        "transport": way.transport,
        "default_port": str(DEFAULT_PORTS[way.transport]),
        "endpoint_variable": endpoint,
        "say_plain": f"begin {endpoint} with http://" if target is not None else f"set {insecure}=true",
        "signal_variable": f"OTEL_EXPORTER_OTLP_{way.signal.upper()}_ENDPOINT",
        "protocol_variable": variable(way.signal, "PROTOCOL", probe),
        "headers_variable": headers,
        "certificate_variable": variable(way.signal, "CERTIFICATE", probe),
        "headers": f"{headers} sends {', '.join(way.headers)}" if way.headers else "no header is configured",
        "timeout_ms": f"{probe.timeout_s * 1000:.0f}",
        "signal": way.signal,
        "signal_switch": switch,
        "default": ", the default: no endpoint is set" if way.endpoint_origin == "default" else "",
    }
    way.outcome = verdict.code
    way.detail = secrets.scrub(verdict.facts.get("detail", ""))
    return verdict.finding(way.signal, facts)


def _fork_support(plans: Mapping[Signal, ExporterPlan], environ: Mapping[str, str]) -> list[Finding]:
    signals = tuple(signal for signal, plan in plans.items() if plan.transport == "grpc")
    if not signals or not grpc_fork_support(environ):
        return []
    text = "GRPC_ENABLE_FORK_SUPPORT is on, with which gRPC can hang forked processes"
    remedy = "set it to 0, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for jobs that fork"
    return [Finding(WARNING, "grpc_fork_support", text, remedy, signals)]
