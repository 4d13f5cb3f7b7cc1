"""Say whether telemetry would arrive: what is installed, every setting and its origin, and a try of each endpoint.

Nothing is installed, sent or left behind. Exit code 0 when telemetry would arrive, 1 when it would not. Nothing here
imports OpenTelemetry before it has been found to be there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import replace

from nemo_lens.api._discovery import PREFERRED_BACKEND, SPAN_GROUPS
from nemo_lens.api._variables import DEFAULT_PREFIX
from nemo_lens.sdk.cli._terminal import Terminal
from nemo_lens.sdk.cli.doctor import configuration, installation, plugins, span_groups, surroundings
from nemo_lens.sdk.cli.doctor.findings import PROBLEM, WARNING, Finding, merged
from nemo_lens.sdk.cli.doctor.overheard import overhear
from nemo_lens.sdk.cli.doctor.page import Page
from nemo_lens.sdk.cli.doctor.redaction import Secrets
from nemo_lens.sdk.cli.doctor.report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nemo_lens.sdk.cli.doctor.endpoints import Endpoints

_DEFAULT_TIMEOUT_MS = 2000
_MAX_TIMEOUT_MS = 60_000
# Findings after which nobody wonders that there are no exporters.
_SAYS_WHY = ("package_missing", "no_backend")
_SURROGATE = re.compile("[\ud800-\udfff]")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens doctor``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--timeout-ms",
        type=_milliseconds,
        default=_DEFAULT_TIMEOUT_MS,
        metavar="MS",
        help="how long each step of trying an endpoint may take (default %(default)s)",
    )
    parser.add_argument(
        "--prefix",
        type=_prefix,
        default=DEFAULT_PREFIX,
        help="what the application's variables begin with, if it chose a prefix of its own (default %(default)s)",
    )
    parser.add_argument(
        "--fallback-prefix", type=_prefix, default=None, metavar="PREFIX", help="read for what is unset under --prefix"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    report = examine(arguments.prefix, arguments.fallback_prefix, arguments.timeout_ms)
    if arguments.json:
        sys.stdout.write(_as_json(report) + "\n")
    else:
        Page(Terminal(sys.stdout)).show(report)
    return 0 if report.arrives else 1


def _as_json(report: Report) -> str:
    # A byte of the environment that is no UTF-8 is a lone surrogate in Python, which no JSON may hold.
    text = json.dumps(report.as_object(), ensure_ascii=False, default=str)
    return json.dumps(json.loads(_SURROGATE.sub("\ufffd", text)), indent=2)


def examine(prefix: str, fallback_prefix: str | None, timeout_ms: int) -> Report:
    """Look at everything.

    Args:
        prefix: What the application's variables begin with.
        fallback_prefix: Read for what is unset under ``prefix``.
        timeout_ms: Milliseconds for each step of trying an endpoint.
    """
    environ = os.environ
    secrets = Secrets(environ)
    with overhear() as overheard:
        installed = installation.look()
        plugged = plugins.look(environ, overheard, secrets)
        settings = configuration.look(environ, prefix, fallback_prefix, overheard, secrets)
        config = settings.config
        unloaded = {plugin.name for plugin in plugged.found if plugin.error and plugin.group == SPAN_GROUPS}
        groups = span_groups.look(
            config.span_groups, config.sources["span_groups"], settings.variable("span_groups"), unloaded, overheard
        )
        where = surroundings.look(config, environ, overheard)
        tried: Endpoints | None = None
        findings = [
            *installed.findings,
            *plugged.findings,
            *settings.findings,
            *groups.findings,
            *where.findings,
        ]
        if plugged.backend in ("", PREFERRED_BACKEND):
            tried = _endpoints(settings, where, timeout_ms, secrets, findings)
        else:
            findings.append(_foreign(plugged.backend))
        findings += tried.findings if tried is not None else []
    report = Report(installed, plugged, settings, groups, where, tried)
    report.findings = merged(
        replace(finding, message=secrets.scrub(finding.message), remedy=secrets.scrub(finding.remedy))
        for finding in findings
    )
    return report


def _endpoints(
    settings: configuration.Configuration,
    where: surroundings.Surroundings,
    timeout_ms: int,
    secrets: Secrets,
    findings: list[Finding],
) -> Endpoints | None:
    try:
        from nemo_lens.sdk.cli.doctor import endpoints  # needs OpenTelemetry, which may be missing
    except Exception as fault:  # noqa: BLE001 - a broken installation is what doctor is for
        if not any(finding.code in _SAYS_WHY for finding in findings):
            text = f"the exporters cannot be imported: {type(fault).__name__}: {fault}"
            findings.append(Finding(PROBLEM, "no_exporters", text, "pip install --force-reinstall nemo-lens-sdk"))
        return None
    return endpoints.look(settings, os.environ, where.run_id, where.rank, timeout_ms, secrets)


def _foreign(backend: str) -> Finding:
    text = f"backend {backend} exports in its own way, which doctor does not know: no endpoint was tried"
    remedy = f"set NEMO_LENS_BACKEND={PREFERRED_BACKEND} to use OpenTelemetry's exporters"
    return Finding(WARNING, "foreign_backend", text, remedy)


def _milliseconds(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value <= _MAX_TIMEOUT_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 to {_MAX_TIMEOUT_MS}")
    return value


def _prefix(text: str) -> str:
    if not text.strip().rstrip("_"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected the start of variable names, such as {DEFAULT_PREFIX}")
    return text
