"""Who listens on a port: found out byte by byte, without the libraries of either transport."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nemo_lens.sdk.cli.doctor.targets import Target

HTTP_1 = "HTTP/1"
HTTP_2 = "HTTP/2"

# RFC 9113, 3.4: what a client of HTTP/2 begins with, and an empty SETTINGS frame.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4
_FRAME_HEADER = 9
_MAX_BANNER = 60
_ALERT_WITHIN_S = 0.5


@dataclass(frozen=True)
class Reached:
    """Whether a connection stands.

    Args:
        failure: Empty, ``name_not_resolved``, ``refused`` or ``unreachable``.
        detail: What the operating system says.
    """

    failure: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Listener:
    """What listens.

    Args:
        tls: Whether it speaks TLS.
        speaks: ``HTTP/1``, ``HTTP/2`` or empty for something else.
        banner: What it said instead, empty when it was silent.
        distrust: Why its certificate is not to be trusted, empty when it is.
        alert: How it refuses a client that shows no certificate, empty when it does not.
    """

    tls: bool = False
    speaks: str = ""
    banner: str = ""
    distrust: str = ""
    alert: str = ""


def reach(target: Target, timeout_s: float) -> Reached:
    """Resolve the name and connect."""
    try:
        with socket.create_connection(target, timeout_s):
            return Reached()
    except socket.gaierror as fault:
        return Reached("name_not_resolved", fault.strerror or str(fault))
    except (ConnectionRefusedError, ConnectionResetError) as fault:
        return Reached("refused", fault.strerror or str(fault))
    except TimeoutError:
        return Reached("unreachable", f"no answer within {timeout_s * 1000:.0f} ms")
    except (OSError, ValueError) as fault:  # a name that cannot be encoded, a network that is down
        return Reached("unreachable", getattr(fault, "strerror", None) or str(fault))


def listen(target: Target, timeout_s: float, authorities: str = "") -> Listener:
    """Find out what the port speaks.

    Args:
        target: Where to connect.
        timeout_s: Seconds to wait for each of up to four connections.
        authorities: File or folder of the certificate authorities to trust; the system's when empty.
    """
    tls, alert = _speaks_tls(target, timeout_s)
    distrust = _distrust(target, timeout_s, authorities) if tls else ""
    if alert:
        return Listener(tls, distrust=distrust, alert=alert)
    greeting = _greeting(target, tls, _PREFACE, timeout_s)
    if len(greeting) >= _FRAME_HEADER and greeting[3] == _SETTINGS:
        return Listener(tls, HTTP_2, distrust=distrust)
    if not greeting.startswith(b"HTTP/1"):
        request = f"GET / HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
        second = _greeting(target, tls, request.encode(), timeout_s)
        if not second.startswith(b"HTTP/1"):
            return Listener(tls, banner=_banner(greeting or second), distrust=distrust)
    return Listener(tls, HTTP_1, distrust=distrust)


def _banner(data: bytes) -> str:
    return data[:_MAX_BANNER].decode("ascii", "backslashreplace").strip()


def _speaks_tls(target: Target, timeout_s: float) -> tuple[bool, str]:
    """Return whether the other side speaks TLS, and the alert it raises."""
    try:
        with _connected(target, True, timeout_s) as connection:
            # A missing client certificate is refused after the handshake. Nothing is sent, since what is refused too
            # would let the connection be reset and the alert be lost.
            connection.settimeout(min(timeout_s, _ALERT_WITHIN_S))
            try:
                # gRPC servers hang up without an alert.
                return True, "" if connection.recv(1) else "the connection is closed right after the handshake"
            except ssl.SSLError as fault:
                return True, _alert(fault)
            except OSError:
                return True, ""
    except ssl.SSLError as fault:
        # An alert is an answer in TLS: to a client without a certificate, for example.
        return bool(_alert(fault)), _alert(fault)
    except OSError:
        return False, ""


def _alert(fault: ssl.SSLError) -> str:
    _, alert, reason = (fault.reason or "").partition("ALERT_")
    return reason.replace("_", " ").lower() if alert else ""


def _distrust(target: Target, timeout_s: float, authorities: str) -> str:
    if authorities and not Path(authorities).exists():
        return f"there is no {authorities!r}"
    try:
        with _connected(target, True, timeout_s, _trusting(authorities)):
            return ""
    except ssl.SSLCertVerificationError as fault:
        return fault.verify_message
    except (OSError, ValueError):
        return ""


def _trusting(authorities: str) -> ssl.SSLContext:
    if not authorities:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError:
        return ssl.create_default_context(capath=authorities)


def _greeting(target: Target, tls: bool, opening: bytes, timeout_s: float) -> bytes:
    data = b""
    # What it said before it hung up is an answer as well.
    with contextlib.suppress(OSError), _connected(target, tls, timeout_s) as connection:
        connection.sendall(opening)
        while len(data) < _FRAME_HEADER:
            more = connection.recv(4096)
            if not more:
                break
            data += more
    return data


@contextlib.contextmanager
def _connected(
    target: Target, tls: bool, timeout_s: float, context: ssl.SSLContext | None = None
) -> Iterator[socket.socket]:
    with socket.create_connection(target, timeout_s) as plain:
        if not tls:
            yield plain
            return
        if context is None:
            # To look at what it is, not to trust it: no secret is sent over this connection.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(plain, server_hostname=target.host) as encrypted:
            yield encrypted
