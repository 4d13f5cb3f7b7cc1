"""Export spans that a shell script measured: of given times, all of them or, when anything is wrong, none."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import time
from contextlib import contextmanager

from nemo_lens.api import NemoLensConfig, emit_span, ensure_run_id, setup_telemetry
from nemo_lens.api._text import clean_str
from nemo_lens.api.carrier import get_otel_resource_attributes
from nemo_lens.api.config import sdk_disabled
from nemo_lens.api.semconv import NV_DL_ROLE, SERVICE_INSTANCE_ID
from nemo_lens.sdk.cli._span_specs import InvalidSpecsError, read_span_specs, shown
from nemo_lens.sdk.cli._terminal import Terminal, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from nemo_lens.api import TelemetryHandle
    from nemo_lens.sdk.cli._span_specs import SpanSpec

DONE, INVALID, FAILED = 0, 1, 2

# A script tells its own mistakes (1) from a collector's (2), so a misspelt option is no 2 here.
WRONG_ARGUMENTS = INVALID

_MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000
# That is what calling the command says, also where it is in the environment for others, and however it is written.
_IGNORED_VARIABLE = "NEMO_LENS_ENABLED"
# Integrations instrument an application, and there is none.
_UNUSED_VARIABLE = "NEMO_LENS_INSTRUMENT"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens emit-spans``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--service", required=True, metavar="S", help="service.name of the spans")
    parser.add_argument(
        "--span",
        required=True,
        action="append",
        dest="spans",
        metavar="NAME,START,END[,PARENT]",
        help="a span, as often as needed, in any order: one CSV record, START and END in seconds since the epoch "
        "($EPOCHREALTIME, date +%%s.%%N), PARENT the NAME of another --span; names are unique",
    )
    parser.add_argument(
        "--timeout-ms",
        type=_milliseconds,
        metavar="N",
        help="how long the export may take in all (default: NEMO_LENS_SHUTDOWN_TIMEOUT_MS, 5000 when that is not set)",
    )
    parser.epilog = (
        "Where the spans go, and under which parent, is read from the environment: NEMO_LENS_EXPORTER, OTEL_*,\n"
        "TRACEPARENT. NEMO_LENS_ENABLED is ignored.\n\n"
        "exit codes: 0 done; 1 invalid input or configuration, nothing emitted; 2 export failed"
    )


def run(arguments: argparse.Namespace) -> int:
    """Emit the spans; return 0, 1 when something given is wrong, or 2 when they were not confirmed."""
    service = clean_str(arguments.service, len(arguments.service)).strip()
    problems = [] if service else [f"--service is {arguments.service!r}; expected the name of the service"]
    specs: list[SpanSpec] = []
    try:
        specs = read_span_specs(arguments.spans)
    except InvalidSpecsError as error:
        problems += error.problems
    if problems:
        for problem in problems:
            _complain(problem)
        return INVALID
    with _log_on_stderr():
        try:
            config = _config(service, arguments.timeout_ms)
            if off := _switched_off(config):
                _complain(f"{off}: nothing is exported")
                return DONE
            handle = _set_up(config)
        except ValueError as error:
            _complain(str(error))
            return INVALID
        return _export(handle, specs, config.shutdown_timeout_ms)


def _config(service: str, timeout_ms: int | None) -> NemoLensConfig:
    environ = {key: value for key, value in os.environ.items() if key != _IGNORED_VARIABLE}
    config = NemoLensConfig.from_env(environ=environ)
    return dataclasses.replace(
        config,
        enabled=True,
        service_name=service,
        metrics_enabled=False,
        logs_enabled=False,
        span_groups="",  # no group is asked for, so no library has to be imported for its groups
        shutdown_timeout_ms=config.shutdown_timeout_ms if timeout_ms is None else timeout_ms,
    )


def _switched_off(config: NemoLensConfig) -> str:
    """Return the setting by which an operator wants no spans at all: that is no failure, and ends no script."""
    if sdk_disabled():
        return "OTEL_SDK_DISABLED=true"
    return "" if config.traces_enabled else f"{config.sources['traces_enabled']} is off"


def _set_up(config: NemoLensConfig) -> TelemetryHandle:
    inherited = get_otel_resource_attributes()
    # Not that of a rank, also where the script has inherited one, and not that of another call beside this one.
    own = {
        NV_DL_ROLE: "launcher",
        SERVICE_INSTANCE_ID: f"{ensure_run_id(config.run_id)}-launcher-{os.getpid()}",
    }
    integrations = os.environ.pop(_UNUSED_VARIABLE, None)
    try:
        return setup_telemetry(
            config, resource_attributes={key: value for key, value in own.items() if key not in inherited}
        )
    finally:
        if integrations is not None:
            os.environ[_UNUSED_VARIABLE] = integrations


def _export(handle: TelemetryHandle, specs: Sequence[SpanSpec], timeout_ms: int) -> int:
    # OpenTelemetry is imported when there is something to emit: a wrong argument is told at once.
    from nemo_lens.sdk.handle import OtelHandle
    from nemo_lens.sdk.settings import queue_settings

    if not handle.is_exporting:
        _complain("export failed: no telemetry backend could be loaded (nemo-lens doctor says more)")
        return FAILED
    deadline = time.monotonic() + timeout_ms / 1000
    ours = handle if isinstance(handle, OtelHandle) else None  # NEMO_LENS_BACKEND may have chosen another
    # No more at a time than the queue takes; what is beyond would be dropped.
    room = queue_settings("BSP").max_queue_size
    emitted: dict[str, Any] = {}
    confirmed = True
    try:
        for first in range(0, len(specs), room):
            for spec in specs[first : first + room]:
                emitted[spec.name] = _emit(spec, emitted)
            confirmed = handle.force_flush(_left_ms(deadline)) and not (ours and ours.lost_spans())
            if not confirmed:
                break
        timed_out = _left_ms(deadline) == 0
        target = ours.spans_go_to if ours else "the exporter"
    except KeyboardInterrupt:
        deadline = 0.0  # who interrupts a collector that hangs has waited for it long enough
        raise
    finally:
        handle.shutdown(_left_ms(deadline))
    if not confirmed:
        late = f" within {timeout_ms} ms (--timeout-ms)" if timed_out else ""
        _complain(f"export failed: {target} did not confirm all spans{late}")
        return FAILED
    return _judged(emitted)


def _judged(emitted: dict[str, Any]) -> int:
    """Return the exit code when all that was sampled has been confirmed."""
    missing = sum(span is None for span in emitted.values())
    if missing:
        _complain(f"export failed: {missing} of {len(emitted)} spans could not be made, by a fault of a plug-in")
        return FAILED
    unsampled = sum(not span.get_span_context().trace_flags.sampled for span in emitted.values())
    if unsampled:
        _complain(
            f"{unsampled} of {len(emitted)} spans were not sampled, and so not exported, "
            "as OTEL_TRACES_SAMPLER or the flags of TRACEPARENT have it"
        )
    return DONE


def _emit(spec: SpanSpec, emitted: dict[str, Any]) -> Any:
    from opentelemetry.trace import set_span_in_context  # as above

    parent = emitted[spec.parent] if spec.parent is not None else None
    context = set_span_in_context(parent) if parent is not None else None
    return emit_span(None, spec.name, spec.start, spec.end, context=context)


def _left_ms(deadline: float) -> int:
    return max(0, int((deadline - time.monotonic()) * 1000))


def _milliseconds(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_TIMEOUT_MS)) else 0
    if not 0 < number <= _MAX_TIMEOUT_MS:
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: expected a whole number of milliseconds from 1 to {_MAX_TIMEOUT_MS}"
        )
    return number


class _StderrLines(logging.Handler):
    """Shows what an exporter or Lens has to say as a line of this command, a traceback left out."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _complain(printable(record.getMessage()))
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    root = logging.getLogger()
    lines = _StderrLines(logging.WARNING)
    root.addHandler(lines)
    try:
        yield
    finally:
        root.removeHandler(lines)


def _complain(text: str) -> None:
    Terminal(sys.stderr).line(f"nemo-lens emit-spans: {text}")
