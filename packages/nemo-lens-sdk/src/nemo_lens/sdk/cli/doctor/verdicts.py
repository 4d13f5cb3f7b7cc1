"""What can come of an export, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nemo_lens.sdk.cli.doctor.findings import OK, PROBLEM, WARNING, Finding


class Text(NamedTuple):
    """What is said of an outcome."""

    level: str
    message: str
    remedy: str


_ANOTHER_PLACE = "set {endpoint_variable} to where the collector listens"

# The names in braces are those of ``Verdict.facts``.
TEXTS: dict[str, Text] = {
    "arrives": Text(OK, "{where} takes an export over {transport}", ""),
    "name_not_resolved": Text(
        PROBLEM,
        "{host} does not resolve: {detail}",
        "correct the host in {endpoint_variable}, or name resolution on this machine; in Kubernetes a service of "
        "another namespace is SERVICE.NAMESPACE.svc",
    ),
    "refused": Text(PROBLEM, "nothing listens on {where}{default}", f"start the collector there, or {_ANOTHER_PLACE}"),
    "unreachable": Text(
        PROBLEM,
        "{where} cannot be reached: {detail}",
        "look for a firewall, a network policy or a missing route between this machine and the collector, "
        f"or {_ANOTHER_PLACE}",
    ),
    "no_answer": Text(
        PROBLEM,
        "{where} takes the connection and does not answer an export within {timeout_ms} ms",
        "look at the collector: it is stuck or overloaded, or something else listens there; --timeout-ms waits longer",
    ),
    "wrong_protocol": Text(
        PROBLEM,
        "{where} speaks {other}, and {transport} is spoken to it",
        "set {protocol_variable}={other}, or {endpoint_variable} to the collector's port for {transport}, which by "
        "default is {default_port}",
    ),
    "not_otlp": Text(
        PROBLEM,
        "what listens on {where} is no OTLP receiver: {detail}",
        f"{_ANOTHER_PLACE}, by default port 4317 for grpc and 4318 for http/protobuf",
    ),
    "wrong_path": Text(
        PROBLEM,
        "{where} answers {status} to {path}, and takes {signal} at /v1/{signal}",
        "set {signal_variable}={base}/v1/{signal}, or OTEL_EXPORTER_OTLP_ENDPOINT={base}: only to the general variable "
        "is the path of the signal added",
    ),
    "signal_not_accepted": Text(
        PROBLEM,
        "the collector on {where} takes no {signal} ({status})",
        "give the collector a pipeline for {signal}, or set {signal_switch}=0",
    ),
    "unauthenticated": Text(
        PROBLEM,
        "{where} refuses the export for want of credentials ({status}); {headers}",
        "set {headers_variable} to what the receiver demands, as in authorization=Bearer%20TOKEN",
    ),
    "forbidden": Text(
        PROBLEM,
        "{where} knows who is asking and forbids it ({status}); {headers}",
        "set {headers_variable} to credentials that may write telemetry, or have them allowed to",
    ),
    "tls_certificate": Text(
        PROBLEM,
        "the certificate of {where} is not trusted{judged}: {detail}",
        "set {certificate_variable} to a PEM file of the authority that signed it, and use a host name that "
        "the certificate holds",
    ),
    "tls_client_certificate": Text(
        PROBLEM,
        "{where} refuses a client without a certificate that it trusts: {detail}",
        "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY to PEM files (grpc reads them "
        "only where OTEL_EXPORTER_OTLP_CERTIFICATE is set too)",
    ),
    "tls_expected": Text(
        PROBLEM,
        "{where} speaks TLS, and is spoken to without it",
        "begin {endpoint_variable} with https://",
    ),
    "tls_unexpected": Text(
        PROBLEM,
        "{where} does not speak TLS, and is spoken to with it",
        "{say_plain}: without a scheme, or where OTEL_EXPORTER_OTLP_INSECURE=false, grpc speaks TLS",
    ),
    "proxy": Text(
        PROBLEM,
        "the way to {where} leads through the proxy in {proxy}, and the export fails there: {detail}",
        "add {host} to NO_PROXY and no_proxy if the collector can be reached without the proxy",
    ),
    "redirected": Text(
        PROBLEM,
        "{where} redirects to another address ({status}): {detail}",
        "set {endpoint_variable} to the address itself; if it is a login page, the receiver wants credentials",
    ),
    "unwell": Text(
        WARNING,
        "the collector on {where} is there and does not take data now ({status}): {detail}",
        "look at the collector's log; exports are tried again for a while, and are then lost",
    ),
    "empty_refused": Text(
        WARNING,
        "{where} does not take an export without content ({status}): {detail}",
        "some receivers are like that; try a span: nemo-lens emit-spans",
    ),
    "rejected": Text(
        PROBLEM,
        "{where} refuses the export ({status}): {detail}",
        "look at the receiver's log and documentation for what it refuses",
    ),
    "failed": Text(
        PROBLEM,
        "the export to {where} fails: {detail}",
        "look at the collector's log, and whether {endpoint_variable} leads to it",
    ),
}


@dataclass(frozen=True)
class Verdict:
    """What came of an export.

    Args:
        code: One of ``TEXTS``.
        facts: What its text needs, beyond what is known of every export.
        suggestion: A setting that has been tried and works.
    """

    code: str
    facts: Mapping[str, str] = field(default_factory=dict)
    suggestion: str = ""

    def finding(self, signal: str, facts: Mapping[str, str]) -> Finding:
        """Return the finding; ``facts`` are those known of every export."""
        level, message, remedy = TEXTS[self.code]
        known = {**facts, "detail": "", **self.facts}
        remedy = remedy.format(**known)
        if self.suggestion:
            remedy = f"{self.suggestion}; or {remedy}"
        return Finding(level, self.code, message.format(**known), remedy, (signal,))
