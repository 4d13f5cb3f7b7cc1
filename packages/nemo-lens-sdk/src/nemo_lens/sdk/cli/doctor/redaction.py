"""What must not be shown: values of headers, credentials in URLs, resource attributes that hold secrets.

Where it cannot be told which part is the secret, more is taken out than that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from nemo_lens.api import carrier
from nemo_lens.api._redaction import DEFAULT_RULES

REDACTED = "[REDACTED]"

# Shorter ones would take harmless words out of messages.
_MIN_LENGTH = 4
# What the library quotes of a pair that it drops; the end of a secret may be cut off there.
_QUOTED_LENGTH = 80
_ALIKE = 0.8

# What the exporters take for a header (opentelemetry.util.re.parse_env_headers): the name is a token (RFC 9110, 5.6.2),
# the value printable ASCII without quote, comma, semicolon and backslash, blanks tolerated.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[ !#-+\--:<-\[\]-~]*")

# One alternative and no scheme before it, so that a long text is read once.
_AFTER_SCHEME = re.compile(r"(?<=://)\S+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_QUOTE = re.compile(r"['\"]")


def is_header_list(name: str) -> bool:
    """Return whether the exporters read headers from a variable."""
    return name.startswith("OTEL_") and name.endswith("_HEADERS")


def is_address(name: str) -> bool:
    """Return whether a variable holds one address, which needs no scheme: an endpoint or a proxy."""
    folded = name.lower()
    if folded.endswith("_proxy"):
        return folded not in ("no_proxy", "no_grpc_proxy")
    return folded.startswith("otel_") and folded.endswith("_endpoint")


def header_pairs(text: str) -> list[tuple[str, str]]:
    """Return names and raw values of a list of headers; a part that no exporter would send has an empty name."""
    return [_header(part) for part in filter(None, (part.strip() for part in text.split(",")))]


def _header(part: str) -> tuple[str, str]:
    name, equals, value = (each.strip(" \t") for each in part.partition("="))
    good = equals and _TOKEN.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
    return (name, value) if good else ("", part)


def shown(name: str, value: str) -> str:
    """Return the value of a variable as it may be shown."""
    if _may_hold_headers(name):
        return ",".join(f"{header}={REDACTED}" if header else REDACTED for header, _ in header_pairs(value))
    if name == carrier.VARIABLE:
        return ",".join(text for text, *_ in _carried(value))
    if DEFAULT_RULES.cover(name):
        return REDACTED
    return shown_address(value) if is_address(name) else shown_value(value)


def shown_attribute(key: str, value: Any) -> Any:
    """Return the value of a resource attribute as it may be shown."""
    if isinstance(value, str):
        return REDACTED if DEFAULT_RULES.cover(key) else shown_value(value)
    if isinstance(value, (tuple, list)):
        return [shown_attribute(key, each) for each in value]
    return value


def shown_url(text: str) -> str:
    """Return ``text`` with user, password and query taken out of the URLs in it."""
    return _AFTER_SCHEME.sub(_hide_match, text)


def shown_value(value: str) -> str:
    """Return a value, which may be or hold a URL, without user, password and query."""
    return shown_address(value) if _SCHEME.match(value) else shown_url(value)


def shown_address(text: str) -> str:
    """Return one address, with or without a scheme, without user, password and query."""
    scheme, rest = _divided(text)
    return scheme + _hide(rest, len(rest))


class Secrets:
    """The secrets of an environment, to be taken out of what others write about it.

    An exporter's or a library's message may quote the header that it could not send, or the URL that it called.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        found: set[str] = set()
        # Whole addresses and users, however short they are: in front of their hosts they are no harmless words.
        instead: dict[str, str] = {}
        for name, value in environ.items():
            if _may_hold_headers(name):
                for _, raw in header_pairs(value):
                    # "Bearer abc": also the part after the scheme alone.
                    found |= {raw, raw.partition("=")[2], unquote(raw), *unquote(raw).split()[-1:]}
            elif name == carrier.VARIABLE:
                for _, secret, quoted in _carried(value):
                    found |= {secret, unquote(secret), quoted, *_credentials(_urls(unquote(secret)))}
            elif is_address(name):
                address = value.strip()
                _, rest = _divided(address)
                found |= _credentials([rest])
                instead[address] = shown_address(address)
                instead[f"{rest.rpartition('@')[0]}@"] = f"{REDACTED}@"
            elif DEFAULT_RULES.cover(name):
                found.add(value)
            elif name.startswith("OTEL_"):
                found |= _credentials(_urls(value))
        instead.update((secret, REDACTED) for secret in found if len(secret) >= _MIN_LENGTH)
        # Many messages have them in Python's own notation.
        instead.update([(repr(secret)[1:-1], after) for secret, after in instead.items()])
        changed = [(secret, after) for secret, after in instead.items() if secret not in (after, "", "@")]
        self._instead = sorted(changed, key=_length, reverse=True)

    def scrub(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for secret, after in self._instead:
            text = text.replace(secret, after)
        return shown_url(text)


def _length(pair: tuple[str, str]) -> int:
    return len(pair[0])


def _may_hold_headers(name: str) -> bool:
    """Return whether a variable seems to hold headers: its name may be misspelt."""
    start, _, end = name.rpartition("_")
    return start.startswith("OTEL") and difflib.SequenceMatcher(None, end, "HEADERS").ratio() >= _ALIKE


def _carried(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield of each pair of a resource: as it may be shown, its secret, and what is quoted of that if it is dropped."""
    secret = False
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals:
            # After a secret mostly the rest of it: a comma that should have been encoded.
            key, value = "", pair
        else:
            secret = DEFAULT_RULES.cover(unquote(key.strip()))
        decoded = unquote(value)
        safe = REDACTED if secret and value.strip() else shown_value(decoded)
        if safe == decoded:
            yield pair, "", ""
        else:
            quoted = pair.strip()[:_QUOTED_LENGTH]
            yield f"{key}{equals}{safe}", value.strip(), quoted.partition("=")[2].strip() if equals else quoted


def _urls(value: str) -> list[str]:
    """Return what ``shown_value`` looks at."""
    scheme, rest = _divided(value)
    return [rest] if scheme else _AFTER_SCHEME.findall(value)


def _divided(address: str) -> tuple[str, str]:
    """Return the scheme with what ends it, and the rest."""
    scheme = _SCHEME.match(address)
    end = scheme.end() if scheme else 0
    return address[:end], address[end:]


def _hide_match(match: re.Match[str]) -> str:
    rest = match[0]
    # A URL in a message may stand in quotes; a password that holds some is in front of the host.
    quote = _QUOTE.search(rest, rest.rfind("@") + 1)
    return _hide(rest, quote.start() if quote else len(rest))


def _hide(rest: str, end: int) -> str:
    """Return what follows a scheme, up to ``end`` an address, without user, password and query."""
    user, at, place = rest[:end].rpartition("@")
    if "?" in user:  # in a password, or an @ in a query: both ends may be secret
        return REDACTED + rest[end:]
    place, mark, query = place.partition("?")
    return f"{REDACTED if at else ''}{at}{place}{mark}{REDACTED if query else ''}{rest[end:]}"


def _credentials(addresses: Iterable[str]) -> set[str]:
    """Return what of addresses, their schemes taken off, is secret, whole and in the parts that messages quote."""
    found: set[str] = set()
    for address in addresses:
        user, _, place = address.rpartition("@")
        query = (place if "?" not in user else address).partition("?")[2]
        found |= {user, user.partition(":")[2], *user.split("/"), query}
        found |= {pair.partition("=")[2] for pair in query.split("&")}
    return found | {unquote(each) for each in found}
