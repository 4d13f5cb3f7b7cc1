"""The ``otlp`` exporter: the official gRPC and HTTP exporters, their settings checked before one is built."""

from __future__ import annotations

import importlib
import re
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.util.re import parse_env_headers

from nemo_lens.api._diagnostics import nearest
from nemo_lens.sdk._compat import without_own_metrics
from nemo_lens.sdk.exporters._plan import ExporterPlan
from nemo_lens.sdk.exporters._sinks import ExporterSink, sdk_exporter
from nemo_lens.sdk.exporters.log_throttle import throttle_log_of
from nemo_lens.sdk.exporters.rejections import SESSION, Rejections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nemo_lens.sdk.exporters._plan import Signal
    from nemo_lens.sdk.exporters.preferences import MetricPreferences

_PREFIX = "OTEL_EXPORTER_OTLP"
_DEFAULT_TIMEOUT_S = 10.0
# Name and value of a header that can be sent: RFC 9110, 5.1 and 5.5, and "Custom-Metadata" of gRPC over HTTP/2.
_HEADERS = {
    "grpc": (re.compile(r"[0-9a-z_.-]+"), re.compile(r"[\x20-\x7e]*"), "printable ASCII"),
    "http/protobuf": (
        re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+"),
        re.compile(r"[\t\x20-\x7e\x80-\xff]*"),
        "printable characters of ISO 8859-1",
    ),
}
_FILES = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")


class _Transport(NamedTuple):
    package: str
    # As otel.component.type has it.
    component: str
    default_endpoint: str
    # Value of the variable to where the exporter's own constant is.
    compression: dict[str, tuple[str, str]]
    # What some version of it imports at its first export: in a thread, and a fork in the middle would leave the child
    # the lock of the import, held for ever.
    imported_late: tuple[str, ...]


_GRPC_COMPRESSION = {"none": ("grpc", "NoCompression"), "gzip": ("grpc", "Gzip")}
_HTTP = "opentelemetry.exporter.otlp.proto.http"
_HTTP_COMPRESSION = {"none": (_HTTP, "NoCompression"), "gzip": (_HTTP, "Gzip"), "deflate": (_HTTP, "Deflate")}

_TRANSPORTS = {
    "grpc": _Transport(
        "opentelemetry.exporter.otlp.proto.grpc",
        "otlp_grpc",
        "http://localhost:4317",
        _GRPC_COMPRESSION,
        ("grpc._channel", "grpc.experimental"),
    ),
    "http/protobuf": _Transport(
        _HTTP, "otlp_http", "http://localhost:4318", _HTTP_COMPRESSION, ("requests", "netrc", "encodings.idna", SESSION)
    ),
}

# Module, class, and what otel.component.type calls it.
_CLASSES: dict[Signal, tuple[str, str, str]] = {
    "traces": ("trace_exporter", "OTLPSpanExporter", "span_exporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter", "metric_exporter"),
    "logs": ("_log_exporter", "OTLPLogExporter", "log_exporter"),
}


def plan(
    signal: Signal, variables: Mapping[str, str], preferences: MetricPreferences, *, counted: bool = True
) -> ExporterPlan:
    """Plan the OTLP exporter of a signal.

    What was checked is handed to the exporter, so a variable that changes before the first batch changes nothing; it
    also makes a blank variable mean an unset one, and ``none`` a compression, as the specification has it and the
    gRPC exporter does not. Headers and TLS stay with the exporter.

    Args:
        signal: the signal.
        variables: where the settings stand.
        preferences: of a metric exporter.
        counted: whether Lens counts what it exports, so that it is not to count for itself as well.

    Raises:
        ValueError: A variable holds what cannot work, or the exporter's package does not import.
    """
    protocol = _protocol(signal, variables)
    transport = _TRANSPORTS[protocol]
    endpoint = _endpoint(signal, variables, protocol)
    timeout = _timeout(signal, variables, protocol)
    compression = _compression(signal, variables, transport)
    _check_headers(signal, variables, protocol)
    _check_files(signal, variables, protocol)
    module, name, component = _CLASSES[signal]
    try:
        exporter_class = getattr(importlib.import_module(f"{transport.package}.{module}"), name)
        home, constant = transport.compression[compression]
        constants = importlib.import_module(home).Compression
        for late in transport.imported_late:
            with suppress(ImportError):  # a version that has no use for it
                importlib.import_module(late)
    except ImportError as fault:
        raise ValueError(f"exporter otlp over {protocol}: {transport.package} cannot be imported: {fault}") from fault
    throttle_log_of(exporter_class)
    build = partial(exporter_class, endpoint=endpoint, timeout=timeout, compression=getattr(constants, constant))
    if counted:
        build = partial(build, **without_own_metrics(exporter_class))

    def make() -> Any:
        label = f"exporter otlp of {signal} ({protocol}, {endpoint})"
        rejections = Rejections(signal, label)
        return sdk_exporter(
            signal, ExporterSink(partial(rejections.build, build, protocol)), label, preferences, rejections
        )

    return ExporterPlan(
        name="otlp",
        transport=protocol,
        make=make,
        endpoint=endpoint,
        build=build,
        component=f"{transport.component}_{component}",
    )


def _names(signal: Signal, key: str) -> tuple[str, str]:
    return f"{_PREFIX}_{signal.upper()}_{key}", f"{_PREFIX}_{key}"


def setting(signal: Signal, variables: Mapping[str, str], key: str) -> tuple[str, str]:
    """Return the name and the stripped value of the variable in force: the signal's, else the general one."""
    for name in _names(signal, key):
        if value := variables.get(name, "").strip():
            return name, value
    return "", ""


def _protocol(signal: Signal, variables: Mapping[str, str]) -> str:
    name, value = setting(signal, variables, "PROTOCOL")
    protocol = value.lower() or "grpc"
    if protocol not in _TRANSPORTS:
        raise ValueError(f"{name}={value!r}: expected {' or '.join(_TRANSPORTS)}{nearest(protocol, _TRANSPORTS)}")
    return protocol


def _endpoint(signal: Signal, variables: Mapping[str, str], protocol: str) -> str:
    name, value = setting(signal, variables, "ENDPOINT")
    endpoint = value or _TRANSPORTS[protocol].default_endpoint
    http = protocol != "grpc"
    expected = "http://HOST:PORT or https://HOST:PORT"
    if not http:
        expected += ", or a gRPC target such as HOST:PORT"
    try:
        parts = urlsplit(endpoint)
        web = parts.scheme in ("http", "https")
        usable = bool(parts.hostname) and parts.port != 0 if web else not http
    except ValueError:  # a port that is no number, an IPv6 address without its bracket
        usable = False
    if not usable or any(each.isspace() for each in endpoint):
        raise ValueError(f"{name}={value!r}: expected {expected}")
    if http and name != _names(signal, "ENDPOINT")[0]:
        return f"{endpoint.removesuffix('/')}/v1/{signal}"
    return endpoint


def _timeout(signal: Signal, variables: Mapping[str, str], protocol: str) -> float:
    expected = "expected a number of seconds above 0"
    own = _names(signal, "TIMEOUT")[0]
    if protocol == "grpc" and own in variables and not variables[own].strip():
        # The gRPC exporter reads this one even when it is given a timeout, and fails on a blank.
        raise ValueError(f"{own}={variables[own]!r}: {expected}, or the variable unset")
    name, value = setting(signal, variables, "TIMEOUT")
    if not value:
        return _DEFAULT_TIMEOUT_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(f"{name}={value!r}: {expected}")
    return seconds


def _compression(signal: Signal, variables: Mapping[str, str], transport: _Transport) -> str:
    name, value = setting(signal, variables, "COMPRESSION")
    compression = value.lower() or "none"
    if compression not in transport.compression:
        accepted = tuple(transport.compression)
        raise ValueError(f"{name}={value!r}: expected {', '.join(accepted)}{nearest(compression, accepted)}")
    return compression


def _check_headers(signal: Signal, variables: Mapping[str, str], protocol: str) -> None:
    variable, text = setting(signal, variables, "HEADERS")
    fits_name, fits_value, expected = _HEADERS[protocol]
    # What stands in the text unescaped can be sent, or is left out by the exporters, which say so.
    for part in (each for each in text.split(",") if "%" in each):
        for name, value in parse_env_headers(part, liberal=True).items():
            if not fits_name.fullmatch(name):
                raise ValueError(f"{variable}: {name!r} is no name of a header: expected letters, digits, - and _")
            if not fits_value.fullmatch(value):
                # Without the value, which mostly is a secret.
                raise ValueError(
                    f"{variable}: the value of {name!r} cannot be sent over {protocol}: expected {expected}, "
                    "percent-encoded; a % itself is %25"
                )


def _check_files(signal: Signal, variables: Mapping[str, str], protocol: str) -> None:
    for key in _FILES:
        name = next((each for each in _names(signal, key) if variables.get(each)), "")
        if not name:
            continue
        path = Path(variables[name])
        # HTTP takes a folder of certificates, too.
        if key == "CERTIFICATE" and protocol != "grpc" and path.is_dir():
            continue
        try:
            with path.open("rb"):
                pass
        except (OSError, ValueError) as fault:
            raise ValueError(f"{name}={variables[name]!r}: expected a readable file: {fault}") from None
