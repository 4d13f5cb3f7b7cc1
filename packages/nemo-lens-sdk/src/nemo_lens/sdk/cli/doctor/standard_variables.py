"""What is wrong with the variables that OpenTelemetry itself defines."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from functools import partial

from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk import settings
from nemo_lens.sdk.cli.doctor.findings import PROBLEM, WARNING, Finding
from nemo_lens.sdk.cli.doctor.redaction import header_pairs, is_header_list

# How alike two names must be for one to be the other misspelt: all of these begin alike.
_ALIKE = 0.9


def _propagators() -> None:
    settings.validate_propagators()
    if os.environ.get("OTEL_PROPAGATORS", "").strip():  # OpenTelemetry is installed then
        settings.propagator()


_CHECKS: tuple[Callable[[], object], ...] = (
    settings.validate_sampler_and_limits,
    _propagators,
    settings.validate_providers,
    partial(settings.queue_settings, "BSP"),
    partial(settings.queue_settings, "BLRP"),
    settings.metric_interval_s,
    settings.metric_timeout_s,
    settings.exemplar_filter,
    partial(settings.reports_itself, ""),
)

_PARENT_BASED = tuple(name for name in settings.SAMPLERS if name.startswith("parentbased_"))
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


def look(config: NemoLensConfig, environ: Mapping[str, str]) -> list[Finding]:
    """Return what is the matter with them.

    Args:
        config: The settings.
        environ: The environment; what set-up checks is read from ``os.environ``.
    """
    return [*_misspelt(environ), *_headers(environ), *_sampled_out(config, environ)]


def refused() -> list[str]:
    """Return what set-up would raise."""
    errors = []
    for check in _CHECKS:
        try:
            check()
        except ValueError as fault:
            errors.append(str(fault))
    return errors


def _misspelt(environ: Mapping[str, str]) -> list[Finding]:
    known = _standard_names()
    findings = []
    for name in sorted(environ):
        if name.startswith("OTEL_") and name not in known and environ[name].strip():
            near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
            if near:
                text = f"{name} is set, and OpenTelemetry knows no such variable: did you mean {near[0]}?"
                findings.append(Finding(WARNING, "unknown_variable", text, f"rename it to {near[0]}, or unset it"))
    return findings


def _standard_names() -> list[str]:
    try:
        from opentelemetry import environment_variables as of_api  # absent where doctor is needed most
        from opentelemetry.sdk import environment_variables as of_sdk
    except Exception:  # noqa: BLE001 - a broken installation is reported where the backend is loaded
        return []
    return sorted(
        {value for module in (of_api, of_sdk) for value in vars(module).values() if str(value).startswith("OTEL_")}
    )


def _headers(environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for name in sorted(filter(is_header_list, environ)):
        pairs = header_pairs(environ[name])
        bad = [str(number) for number, (header, _) in enumerate(pairs, start=1) if not header]
        if bad:
            text = (
                f"{name}: part {' and '.join(bad)} of {len(pairs)} is no NAME=VALUE that can be sent, and is left out"
            )
            remedy = (
                "separate headers by commas and write them as authorization=Bearer%20TOKEN, a comma as %2C, ; as %3B"
            )
            findings.append(Finding(WARNING, "malformed_header", text, remedy))
    return findings


def _sampled_out(config: NemoLensConfig, environ: Mapping[str, str]) -> list[Finding]:
    if not config.traces_enabled:
        return []
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    by_parent = sampler in ("", *_PARENT_BASED)
    sampled = _parent_is_sampled(environ)
    # Where nothing else is sent, nothing arrives.
    level = WARNING if config.metrics_enabled or config.logs_enabled else PROBLEM
    if by_parent and sampled is False:
        text = f"TRACEPARENT={environ['TRACEPARENT'].strip()} says that the trace is not sampled, so spans of this "
        remedy = "unset TRACEPARENT, or sample in the launcher"
        return [Finding(level, "sampled_out", f"{text}process are dropped", remedy, ("traces",))]
    ratio = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    try:
        nothing = sampler.endswith("always_off") or (sampler.endswith("traceidratio") and float(ratio or 1) == 0)
    except ValueError:  # reported among the errors
        nothing = False
    if not nothing or (by_parent and sampled):
        return []
    which = f"OTEL_TRACES_SAMPLER={sampler}{f' with {ratio}' if sampler.endswith('traceidratio') else ''}"
    text = f"{which} drops every span{' that has no parent' if by_parent else ''}"
    return [Finding(level, "sampled_out", text, "unset it, or choose parentbased_always_on", ("traces",))]


def _parent_is_sampled(environ: Mapping[str, str]) -> bool | None:
    """Return the flag of ``TRACEPARENT`` (W3C Trace Context, 3.2), None when there is no parent to read there."""
    match = _TRACEPARENT.fullmatch(environ.get("TRACEPARENT", "").strip())
    return None if match is None else bool(int(match[1], 16) & 1)
