"""Where an endpoint leads: host, port, and the proxy on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

_WEB_PORTS = {"http": 80, "https": 443}
_GRPC_PORT = 443  # gRPC's own default, whatever the scheme

# [dns:[//authority/]]host[:port]; other schemes of gRPC (unix, xds) have no host to try.
_GRPC_TARGET = re.compile(r"(?:dns:(?://[^/]*/)?/?|ipv[46]:)?(\[[^\]]+\]|[^:/\[\]]+)(?::(\d+))?")


class Target(NamedTuple):
    """A host and a port to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target_of(endpoint: str, transport: str) -> Target | None:
    """Return the host and port of an endpoint; None when it has none, as ``unix:/run/otel.sock``."""
    parts = urlsplit(endpoint)
    if parts.scheme in _WEB_PORTS:
        default = _GRPC_PORT if transport == "grpc" else _WEB_PORTS[parts.scheme]
        return Target(parts.hostname or "", parts.port or default)
    match = _GRPC_TARGET.fullmatch(endpoint)
    if match is None:
        return None
    return Target(match[1].strip("[]"), int(match[2] or _GRPC_PORT))


def proxy_of(endpoint: str, target: Target, transport: str, environ: Mapping[str, str]) -> str:
    """Return the variable that sends the connection through a proxy; empty when it goes straight."""
    if transport == "grpc":
        return _grpc_proxy(target.host, environ)
    from requests.utils import get_environ_proxies, select_proxy  # loaded only where HTTP is spoken

    chosen = select_proxy(endpoint, get_environ_proxies(endpoint, no_proxy=None))
    if not chosen:
        return ""
    names = [
        name for scheme in (urlsplit(endpoint).scheme, "all") for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
    ]
    return next((name for name in names if environ.get(name)), "a proxy of this system")


def _grpc_proxy(host: str, environ: Mapping[str, str]) -> str:
    # https://github.com/grpc/grpc/blob/master/doc/environment_variables.md
    name = next((each for each in ("grpc_proxy", "https_proxy", "http_proxy") if environ.get(each)), "")
    exempt = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    suffixes = [part.strip() for part in exempt.split(",") if part.strip()]
    return "" if any(host.endswith(suffix) for suffix in suffixes) else name
