"""``command-line.md``: every command of ``nemo-lens`` with its arguments, as the parsers have them.

The parsers' own help is laid out differently by each version of Python, and this page must not be.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from nemo_lens.sdk import cli

from .markdown import code, from_docstring, paragraph, section, table, title

_WIDTH = 100


def lines() -> Iterator[str]:
    """Return the lines of the page."""
    yield from title("Command line")
    yield from paragraph(
        "`nemo-lens COMMAND --help` says the same. [The nemo-lens command](../command-line.md) shows what each prints, "
        "and explains it."
    )
    yield from table(
        ("command", "what it does"),
        ((f"[`{name}`](#{name})", text) for name, text in sorted(cli.COMMANDS.items())),
    )
    yield from paragraph(
        "`nemo-lens --version` prints the version. Exit codes of all: 0 done, 1 failed, 2 wrong arguments, 130 "
        "interrupted; where a command has others, its section says so."
    )
    for name in sorted(cli.COMMANDS):
        yield from _command(name)


def _command(name: str) -> Iterator[str]:
    module, parser = cli.command_parser(name)
    yield from section(name)
    said = (module.__doc__ or "").strip().split("\n\n")
    yield from paragraph(" ".join(from_docstring(said[0]).split()))
    arguments = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    yield from ("", "```text", *_usage(parser.prog, arguments), "```")
    yield from table(
        ("argument", "what it says"),
        ((code(_invocation(action)), _help(action, parser)) for action in arguments if not _is_help(action)),
    )
    if parser.epilog:
        yield from ("", "```text", *parser.epilog.strip().splitlines(), "```")


def _usage(program: str, arguments: list[argparse.Action]) -> list[str]:
    # Options first, then what is positional, as argparse has it.
    ordered = sorted(arguments, key=lambda action: not action.option_strings)
    parts = ["[-h]", *(_in_usage(action) for action in ordered if not _is_help(action))]
    indent = " " * (len(program) + 1)
    # A part is not to be broken at its blanks.
    kept = " ".join(part.replace(" ", "\0") for part in parts)
    wrapped = textwrap.wrap(kept, _WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    text = [line.replace("\0", " ") for line in wrapped]
    return [f"{program} {text[0]}", *(indent + line for line in text[1:])]


def _in_usage(action: argparse.Action) -> str:
    if not action.option_strings:
        return _values(action)
    text = " ".join(filter(None, (action.option_strings[0], _values(action))))
    return text if action.required else f"[{text}]"


def _invocation(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    return " ".join(filter(None, (names, _values(action))))


def _values(action: argparse.Action) -> str:
    """Return how the value of an argument is written, if it takes one."""
    if action.nargs == 0:
        return ""
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    name = str(action.metavar or choices or (action.dest.upper() if action.option_strings else action.dest))
    return f"{name} [{name} ...]" if action.nargs == "+" else name


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = " ".join((action.help or "").split()) % {**vars(action), "prog": parser.prog}
    return f"{text}; required" if action.required and action.option_strings else text


def _is_help(action: argparse.Action) -> bool:
    return "--help" in action.option_strings
