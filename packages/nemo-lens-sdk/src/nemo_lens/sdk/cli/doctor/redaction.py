"""What must not be shown: values of headers, credentials in URLs, resource attributes that hold secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from nemo_lens.api import carrier
from nemo_lens.api._redaction import DEFAULT_RULES

REDACTED = "[REDACTED]"

# Shorter ones would take harmless words out of messages.
_MIN_LENGTH = 4

_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(?<=\S)\?[^\s'\"#]+")
_URL = re.compile(r"\S+://\S+")


def is_header_list(name: str) -> bool:
    """Return whether a variable holds headers."""
    return name.startswith("OTEL_") and name.endswith("_HEADERS")


def header_pairs(text: str) -> list[tuple[str, str]]:
    """Return names and raw values of a list of headers; a part without ``=`` has an empty name."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        pairs.append((name.strip(), value.strip()) if equals else ("", part))
    return pairs


def shown(name: str, value: str) -> str:
    """Return the value of a variable as it may be shown."""
    if is_header_list(name):
        return ",".join(f"{header}={REDACTED}" if header else REDACTED for header, _ in header_pairs(value))
    if name == carrier.VARIABLE:
        return ",".join(_shown_pair(pair) for pair in value.split(","))
    if DEFAULT_RULES.cover(name):
        return REDACTED
    return shown_url(value)


def shown_attribute(key: str, value: Any) -> Any:
    """Return the value of a resource attribute as it may be shown."""
    return REDACTED if isinstance(value, str) and DEFAULT_RULES.cover(key) else value


def shown_url(text: str) -> str:
    """Return ``text`` with user, password and query taken out of the URLs in it."""
    return _URL.sub(lambda url: _QUERY.sub(f"?{REDACTED}", _USER.sub(f"{REDACTED}@", url[0])), text)


class Secrets:
    """The secrets of an environment, to be taken out of what others write about it.

    An exporter's or a library's message may quote the header that it could not send, or the URL that it called.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        found: set[str] = set()
        for name, value in environ.items():
            if is_header_list(name):
                for _, raw in header_pairs(value):
                    # "Bearer abc": also the part after the scheme alone.
                    found |= {raw, unquote(raw), unquote(raw).rpartition(" ")[2]}
            elif name.startswith("OTEL_") and "://" in value:
                for part in (*_USER.findall(value), *_QUERY.findall(value)):
                    secret = part.strip("?@")
                    found |= {secret, unquote(secret), secret.partition(":")[2]}
                    found |= {pair.partition("=")[2] for pair in secret.split("&")}
            elif DEFAULT_RULES.cover(name):
                found.add(value)
        self._found = sorted((each for each in found if len(each) >= _MIN_LENGTH), key=len, reverse=True)

    def scrub(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for secret in self._found:
            text = text.replace(secret, REDACTED)
        return shown_url(text)


def _shown_pair(pair: str) -> str:
    key, equals, _ = pair.partition("=")
    return f"{key}={REDACTED}" if equals and DEFAULT_RULES.cover(unquote(key.strip())) else pair
