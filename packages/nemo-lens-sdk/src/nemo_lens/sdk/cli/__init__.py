"""The ``nemo-lens`` command: finds the command's name and hands the rest of the line to that command's module.

A command is a module of this package with ``configure(parser)`` and ``run(arguments) -> int``. It is imported when it
is called and not before, so that ``nemo-lens --help`` is fast and one command never pays for another.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

# Command -> what the list of commands says about it.
COMMANDS = {
    "demo": "trace a small multi-process training run on this machine and show it",
    "doctor": "say whether telemetry would arrive, and where every setting comes from",
    "emit-spans": "export spans that a shell script measured",
    "groups": "list the span groups and presets of every installed library",
    "set-slurm-resource-attrs": "print the line that hands a SLURM job's attributes on to its processes",
    "timeline": "draw the spans and metrics of all ranks as one trace for Perfetto",
    "tree": "show the span tree of OTLP JSON lines files",
}

_WRONG_ARGUMENTS = 2  # a command may have its own WRONG_ARGUMENTS
_CANNOT_WRITE = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
_INTERRUPTED = 130  # what a shell reports for a program ended by SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments without the program's name; default ``sys.argv[1:]``.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has left: nothing is wrong.
        _discard_output()
        return 0
    except OSError as fault:
        if fault.errno not in _CANNOT_WRITE or fault.filename is not None:
            raise
        _discard_output()
        sys.stderr.write(f"nemo-lens: the output cannot be written: {fault.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as stop:  # argparse, after --help or a wrong argument
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return code


def _open_closed_streams() -> None:
    """Send what goes to a stream that the shell has closed (``>&-``) nowhere, so that no command fails over it."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # In this order, which gives each the descriptor that was closed, so that no socket or file gets it.
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, PTH123 - stays open


def _discard_output() -> None:
    # What is left in the buffer must not make the interpreter complain at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    # The options before the command take no value, so the first word without a dash is the command.
    at = next((index for index, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    parser = _top_parser()
    if parser.parse_args(arguments[:at]).version:
        sys.stdout.write(f"nemo-lens {_version()}\n")
        return 0
    if at == len(arguments):
        parser.print_help(sys.stderr)
        return _WRONG_ARGUMENTS
    name = arguments[at]
    if name not in COMMANDS:
        from nemo_lens.api._diagnostics import nearest

        parser.error(f"unknown command {name!r}{nearest(name, COMMANDS)} (commands: {', '.join(sorted(COMMANDS))})")
    command, parser = command_parser(name)
    try:
        parsed = parser.parse_args(arguments[at + 1 :])
    except SystemExit as stop:  # with 0 after --help
        return getattr(command, "WRONG_ARGUMENTS", _WRONG_ARGUMENTS) if stop.code else 0
    code: int = command.run(parsed)
    return code


def command_parser(name: str) -> tuple[ModuleType, argparse.ArgumentParser]:
    """Return the module of a command and the parser of its arguments.

    Args:
        name: one of ``COMMANDS``.
    """
    command = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(prog=f"nemo-lens {name}", description=(command.__doc__ or "").splitlines()[0])
    command.configure(parser)
    return command, parser


def _top_parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<24} {text}" for name, text in sorted(COMMANDS.items()))
    parser = argparse.ArgumentParser(
        prog="nemo-lens",
        usage="nemo-lens [-h] [--version] COMMAND ...",
        description="Look at what NeMo Lens records, and at what an installation can record.",
        epilog=f"commands:\n{listing}\n\nnemo-lens COMMAND --help says more about one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def _version() -> str:
    import nemo_lens.api

    return nemo_lens.api.__version__
