"""Which keys hold what must not leave the process."""

from __future__ import annotations

from nemo_lens.api.fallbacks import CREDENTIAL_KEYS, DEFAULT_REDACT_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_CACHED_KEYS = 4096
_MAX_CACHED_KEY_LENGTH = 256
_MAX_CACHED_RULES = 16


class RedactionRules:
    """What a set of redact keys says about attribute keys, remembered for the keys seen."""

    __slots__ = ("_keys", "_secret", "_suffixes", "ordinary")

    def __init__(self, redact_keys: Iterable[str]) -> None:
        self._keys = frozenset(_folded(key) for key in redact_keys if type(key) is str)
        self._suffixes = tuple(f"_{key}" for key in CREDENTIAL_KEYS & self._keys)
        # Clean keys known not to be redacted, which the hot path looks into, and known to be.
        self.ordinary: set[str] = set()
        self._secret: set[str] = set()

    def cover(self, key: str) -> bool:
        """Return whether strings under ``key``, an exact and clean ``str``, are redacted."""
        if key in self.ordinary:
            return False
        if key in self._secret:
            return True
        folded = _folded(key)
        segment = folded.rpartition(".")[2]
        verdict = folded in self._keys or segment in self._keys or segment.endswith(self._suffixes)
        if len(key) <= _MAX_CACHED_KEY_LENGTH:
            known = self._secret if verdict else self.ordinary
            if len(known) >= _MAX_CACHED_KEYS:
                known.clear()
            known.add(key)
        return verdict


def rules_for(redact_keys: object) -> RedactionRules:
    """Return the rules of a set of redact keys; those of the default set when it is not one."""
    if redact_keys is DEFAULT_REDACT_KEYS:
        return DEFAULT_RULES
    try:
        keys = frozenset((redact_keys,) if type(redact_keys) is str else redact_keys)  # type: ignore[call-overload]
        rules = _rules.get(keys)
        if rules is None:
            if len(_rules) >= _MAX_CACHED_RULES:
                _rules.clear()
            rules = _rules[keys] = RedactionRules(keys)
    except Exception:  # noqa: BLE001 - what cannot be read must neither raise nor switch redaction off
        return DEFAULT_RULES
    return rules


def _folded(key: str) -> str:
    return key.casefold().replace("-", "_")


_rules: dict[frozenset[str], RedactionRules] = {}
DEFAULT_RULES = RedactionRules(DEFAULT_REDACT_KEYS)
