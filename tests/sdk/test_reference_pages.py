"""The generated pages of ``docs/reference/``: up to date on every Python, and complete."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_lens.sdk.cli import COMMANDS, command_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATOR = DOCS / "generate_reference.py"
PAGES = ("attributes.md", "command-line.md", "environment.md", "metrics.md")

_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
# Calls whose first argument is the name of a variable, whatever it looks like.
_READS = ("getenv", "get", "pop", "variable_text")
# In capitals with underscores, and no variable.
_OTHER_WORDS = frozenset(
    (
        # Parts of names, the rest of which is the prefix of the application, a signal, a queue or a het group.
        *("TRACES_ENABLED", "METRICS_ENABLED", "LOGS_ENABLED", "SERVICE_NAME", "SPAN_GROUPS", "FILE_PATH", "RUN_ID"),
        *("USER_ID", "SHUTDOWN_TIMEOUT_MS", "SINGLE_TRACE", "NEMO_LENS", "CLIENT_KEY", "CLIENT_CERTIFICATE"),
        *("OTEL_EXPORTER_OTLP", "SCHEDULE_DELAY", "MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "EXPORT_TIMEOUT"),
        *("JOB_ID", "TASK_ID", "SLURM_JOB_NODELIST"),
        # Names of Python.
        *("DEFAULT_REDACT_KEYS", "WRONG_ARGUMENTS"),
        # Statuses of gRPC, values in OTLP, a number that sysconf knows, and what doctor itself sets for a moment.
        *("INVALID_ARGUMENT", "PERMISSION_DENIED", "DATA_LOSS", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED"),
        *("AGGREGATION_TEMPORALITY_CUMULATIVE", "AGGREGATION_TEMPORALITY_DELTA"),
        *("STATUS_CODE_ERROR", "STATUS_CODE_OK", "STATUS_CODE_UNSET", "SC_CLK_TCK", "GRPC_VERBOSITY"),
    )
)


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=50)


def test_the_pages_are_up_to_date() -> None:
    """``--check`` passes on every supported Python: who changes a table or a command writes the pages again."""
    done = run(GENERATOR, "--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_or_missing_page_is_found_and_mended(tmp_path: Path) -> None:
    """``--check`` exits with 1 and names page and command, and writes nothing; without it the pages are written."""
    script, folder = tmp_path / GENERATOR.name, tmp_path / "reference"
    shutil.copy(GENERATOR, script)
    shutil.copytree(DOCS / "reference_pages", tmp_path / "reference_pages")
    missing = run(script, "--check")
    assert missing.returncode == 1
    assert not folder.exists()
    assert run(script).returncode == 0
    for name in PAGES:
        good = (folder / name).read_bytes()
        assert good == (DOCS / "reference" / name).read_bytes()
        (folder / name).write_bytes(good + b"| one more | row |\n")
    stale = run(script, "--check")
    assert stale.returncode == 1
    assert [line.split(" is not ")[0] for line in stale.stderr.splitlines()] == [str(folder / name) for name in PAGES]
    assert stale.stderr.count("run python docs/generate_reference.py") == len(PAGES)
    assert (folder / PAGES[0]).read_text(encoding="utf-8").endswith("| one more | row |\n")


def test_every_variable_of_the_code_is_documented() -> None:
    """Each variable that the sources of the three wheels read or name stands on the page of variables."""
    found = {name for path in sorted(ROOT.glob("packages/*/src/**/*.py")) for name in variables_of(path.read_text())}
    assert found >= {"NEMO_LENS_BACKEND", "SLURM_JOB_ID", "OTEL_TRACES_SAMPLER", "TERM", "NO_COLOR", "TRACEPARENT"}
    page = (DOCS / "reference/environment.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([A-Za-z0-9_]+)`", page))
    assert sorted(found - documented - _OTHER_WORDS) == []
    assert sorted(_OTHER_WORDS - found) == [], "these are named nowhere any more"


@pytest.mark.parametrize(
    "source",
    [
        "import os\nx = os.environ.get('NEW_VARIABLE', '')",
        "import os\nx = os.environ['NEW_VARIABLE']",
        "TABLE = (('attribute', ('NEW_VARIABLE',)),)",
        "def f(environ):\n    'Read.'\n    return variable_text(environ, 'NEW_VARIABLE')",
    ],
)
def test_an_undocumented_variable_is_found(source: str) -> None:
    """However a variable gets into the code, the test above sees it; a docstring that names one does not count."""
    assert set(variables_of(source)) == {"NEW_VARIABLE"}
    assert not set(variables_of('"NEW_VARIABLE"\ndef f():\n    "NEW_VARIABLE"'))


def test_variables_that_look_like_words_are_found() -> None:
    """What is read directly counts, whatever the name looks like."""
    assert set(variables_of("import os\na = os.environ.get('RANK'), env['USER'], mapping.get('a'), d['B']")) == {
        "RANK",
        "USER",
    }


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_a_command_is_documented(name: str) -> None:
    """The section of a command holds every option that its own help knows."""
    page = (DOCS / "reference/command-line.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    help_text = command_parser(name)[1].format_help()
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_text)) - {"--help"}
    assert not [option for option in options if option not in section]


def variables_of(source: str) -> Iterator[str]:
    """Return what may be the name of an environment variable in a module's code."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            if _VARIABLE.fullmatch(node.value):
                yield node.value
        elif isinstance(node, ast.Subscript) and _is_environment(node.value):
            yield from _name(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _READS and node.args and _is_environment(node.func.value):
                yield from _name(node.args[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "variable_text":
            yield from _name(node.args[1])


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "os", "environ", "env", "variables")


def _name(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
