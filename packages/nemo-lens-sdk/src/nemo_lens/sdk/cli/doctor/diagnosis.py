"""From the answer to an export to what is the matter, made certain by trying what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from nemo_lens.sdk.cli.doctor.answers import Answer
from nemo_lens.sdk.cli.doctor.listener import HTTP_1, HTTP_2, Listener
from nemo_lens.sdk.cli.doctor.probe import Probe
from nemo_lens.sdk.cli.doctor.targets import Target
from nemo_lens.sdk.cli.doctor.verdicts import Verdict
from nemo_lens.sdk.exporters import Signal
from nemo_lens.sdk.exporters.otlp import setting

SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")
DEFAULT_PORTS = {"grpc": 4317, "http/protobuf": 4318}
_OTHER = {"grpc": "http/protobuf", "http/protobuf": "grpc"}
# What stands in for OTEL_EXPORTER_OTLP_CERTIFICATE.
_TRUST = {
    "grpc": ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",),
    "http/protobuf": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
_LAYERS = {"grpc": HTTP_2, "http/protobuf": HTTP_1}

_ABSENT = "absent"  # the receiver, the path or the service: to be looked into

# HTTP and gRPC statuses. The ones that the OTLP specification calls retryable are the collector's bad moments.
_STATUSES = {
    "400": "empty_refused",
    "401": "unauthenticated",
    "403": "forbidden",
    "404": _ABSENT,
    "405": _ABSENT,
    "407": "proxy",
    "429": "unwell",
    "501": _ABSENT,
    "UNAUTHENTICATED": "unauthenticated",
    "PERMISSION_DENIED": "forbidden",
    "UNIMPLEMENTED": _ABSENT,
    "INVALID_ARGUMENT": "empty_refused",
    **dict.fromkeys(
        (
            "ABORTED",
            "CANCELLED",
            "DATA_LOSS",
            "INTERNAL",
            "OUT_OF_RANGE",
            "RESOURCE_EXHAUSTED",
            "UNAVAILABLE",
            "UNKNOWN",
        ),
        "unwell",
    ),
}
# What a receiver that is the right one may answer, even if not with a yes.
_KNOWN_BY = ("arrives", "unauthenticated", "forbidden", "unwell")


@dataclass(frozen=True)
class Attempt:
    """An export that set-up's exporter has tried.

    Args:
        signal: The signal.
        transport: ``grpc`` or ``http/protobuf``.
        endpoint: As the exporter was given it.
        target: Where that leads, None when it is no host.
        proxy: The variable that names a proxy on the way, if any.
        answer: What came of it.
    """

    signal: Signal
    transport: str
    endpoint: str
    target: Target | None
    proxy: str
    answer: Answer


def diagnose(attempt: Attempt, probe: Probe) -> Verdict:
    """Return what is the matter with an export, or that it has arrived."""
    answer = attempt.answer
    code = _code(answer)
    if code == "arrives":
        return Verdict(code)
    if attempt.proxy and (answer.kind != "status" or code in (_ABSENT, "forbidden", "proxy", "unwell")):
        return Verdict("proxy", {"detail": answer.detail or answer.status or "no answer", "proxy": attempt.proxy})
    if answer.kind != "status" or answer.status in ("400", "INTERNAL", "UNKNOWN"):
        verdict = _mismatch(attempt, probe)
        if verdict is not None:
            return verdict
    if code == _ABSENT:
        return _absent(attempt, probe)
    facts = {"status": answer.status, "detail": answer.detail or "it says no more"}
    return Verdict(code, {**facts, "detail": answer.location} if code == "redirected" else facts)


def suggestion(attempt_at: Target, signal: Signal, tls: bool, probe: Probe) -> str:
    """Return the settings under which a receiver on a default port of the host answers, empty when none does."""
    scheme = "https" if tls else "http"
    for transport, port in DEFAULT_PORTS.items():
        there = Target(attempt_at.host, port)
        if port == attempt_at.port or probe.reach(there)[0].failure:
            continue
        base = f"{scheme}://{there}"
        if _is_receiver(probe.attempt(signal, transport, _url(base, transport, signal))):
            return (
                f"an OTLP receiver for {transport} answers on {there}: set "
                f"{_assignment(signal, 'ENDPOINT', _url(base, transport, signal), base, probe)} and "
                f"{variable(signal, 'PROTOCOL', probe)}={transport}"
            )
    return ""


def variable(signal: Signal, key: str, probe: Probe) -> str:
    """Return the variable to change: the one in force, or the general one."""
    return setting(signal, probe.environ, key)[0] or f"OTEL_EXPORTER_OTLP_{key}"


def trust(signal: Signal, transport: str, probe: Probe) -> tuple[str, str]:
    """Return the variable that names the authorities to trust, and its value; empty for the system's."""
    name, value = setting(signal, probe.environ, "CERTIFICATE")
    others = (each for each in _TRUST[transport] if probe.environ.get(each))
    return (name, value) if name else next(((each, probe.environ[each]) for each in others), ("", ""))


def _assignment(signal: Signal, key: str, of_signal: str, general: str, probe: Probe) -> str:
    name = variable(signal, key, probe)
    return f"{name}={of_signal if signal.upper() in name else general}"


def _url(base: str, transport: str, signal: Signal) -> str:
    return base if transport == "grpc" else f"{base}/v1/{signal}"


def _code(answer: Answer) -> str:
    if answer.arrived:
        return "arrives"
    if answer.kind != "status":
        return "no_answer" if answer.kind == "timeout" else "failed"
    if answer.foreign and answer.status[:1] == "2":
        return _ABSENT
    if answer.status in _STATUSES:
        return _STATUSES[answer.status]
    return {"3": "redirected", "5": "unwell"}.get(answer.status[:1], "rejected")


def _is_receiver(answer: Answer | None) -> bool:
    return answer is not None and answer.kind == "status" and _code(answer) in _KNOWN_BY and not answer.foreign


def _mismatch(attempt: Attempt, probe: Probe) -> Verdict | None:
    """Return what the two sides do not agree on, None when it is not that."""
    target, answer = attempt.target, attempt.answer
    if target is None:
        return _without_host(attempt, probe)
    trusting, authorities = trust(attempt.signal, attempt.transport, probe)
    listener = probe.listener(target, authorities)
    if answer.tls or listener.tls:
        verdict = _tls(answer, listener, trusting)
        if verdict is not None:
            return verdict
    if answer.kind == "status":
        return None
    if listener.speaks == _LAYERS[attempt.transport]:
        facts = {"status": answer.status, "detail": answer.detail}
        return Verdict(_STATUSES[answer.status], facts) if answer.status else None
    if not listener.speaks:
        return _no_otlp(attempt, _said(listener), probe) if listener.banner else None
    other = _OTHER[attempt.transport]
    base = f"{'https' if listener.tls else 'http'}://{target}"
    # It may take other signals than this one.
    for signal in dict.fromkeys((attempt.signal, *SIGNALS)):
        if _is_receiver(probe.attempt(signal, other, _url(base, other, signal))):
            return Verdict("wrong_protocol", {"other": other})
    return _no_otlp(attempt, _said(listener), probe)


def _without_host(attempt: Attempt, probe: Probe) -> Verdict | None:
    """Return what is the matter with a gRPC target that no socket of ours can ask, as ``unix:/run/otel.sock``."""
    if not attempt.answer.tls or attempt.answer.kind == "status":
        return None
    in_plain = (probe.attempt(signal, "grpc", attempt.endpoint) for signal in dict.fromkeys((attempt.signal, *SIGNALS)))
    return Verdict("tls_unexpected") if any(map(_is_receiver, in_plain)) else None


def _tls(answer: Answer, listener: Listener, trusting: str) -> Verdict | None:
    if not answer.tls:
        return Verdict("tls_expected")
    if not listener.tls:
        return Verdict("tls_unexpected") if listener.speaks or listener.banner else None
    if listener.distrust or "certificate verify failed" in answer.detail.lower().replace("_", " "):
        judged = f" by what {trusting} names" if trusting else ""
        return Verdict("tls_certificate", {"detail": listener.distrust or answer.detail, "judged": judged})
    return Verdict("tls_client_certificate", {"detail": listener.alert}) if listener.alert else None


def _absent(attempt: Attempt, probe: Probe) -> Verdict:
    """Return what a receiver lacks that is not there, or not at this path, or not for this signal."""
    answer, signal = attempt.answer, attempt.signal
    facts = {"status": answer.status, "signal": signal}
    parts = urlsplit(attempt.endpoint)
    # What stands before /v1/traces may be a gateway's, and then it belongs there.
    base = attempt.endpoint
    if attempt.transport != "grpc":
        base = attempt.endpoint.removesuffix(f"/v1/{signal}").rstrip("/")
        for root in dict.fromkeys((base, f"{parts.scheme}://{parts.netloc}")):
            url = _url(root, attempt.transport, signal)
            if url != attempt.endpoint and _is_receiver(probe.attempt(signal, attempt.transport, url)):
                return Verdict("wrong_path", {**facts, "path": parts.path or "/", "base": root})
    for other in SIGNALS:
        endpoint = _url(base, attempt.transport, other)
        if other != signal and _is_receiver(probe.attempt(other, attempt.transport, endpoint)):
            return Verdict("signal_not_accepted", facts)
    said = f"it answers {answer.status} {answer.detail}".rstrip()
    return _no_otlp(attempt, f"{said}, with {answer.foreign}" if answer.foreign else said, probe)


def _no_otlp(attempt: Attempt, detail: str, probe: Probe) -> Verdict:
    found = ""
    if attempt.target is not None:
        found = suggestion(attempt.target, attempt.signal, attempt.answer.tls, probe)
    return Verdict("not_otlp", {"detail": detail}, found)


def _said(listener: Listener) -> str:
    return f"it says {listener.banner!r}" if listener.banner else f"it speaks {listener.speaks}"
