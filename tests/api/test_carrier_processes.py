"""``OTEL_RESOURCE_ATTRIBUTES`` on its way through real processes: shells, ``env``, Python."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from nemo_lens.api.carrier import format_otel_resource_attributes
from nemo_lens.api.semconv import RESOURCE_FIELDS

NAME = "OTEL_RESOURCE_ATTRIBUTES"

# Values that a shell would expand, split or cut, and that a comma list would take apart.
AWKWARD = {
    "quotes": 'O\'Brien said "x"',
    "expansions": "$HOME ${HOME:-x} `id` $(id) !! ~ ~root a:~root *.py {a,b} [a-z] <(id)",
    "list": "a=b,c=d;e=f&g|h",
    "encoded": "100% %2C %zz + %",
    "lines": "\n first\r\n\tsecond\n",
    "controls": "\x00\x01\x1b[31m\x7f",
    "blanks": "  both ends  ",
    "backslashes": "C:\\new\\",
    "words": "größe 量 🚀",
    "empty": "",
    "long": "x" * 20_000,
    "k8s.pod.labels.app.kubernetes.io/name": "trainer",
    "a key, of a kind": "value",
}
# As a launcher knows them: one value for every key that is sent as an integer.
NUMBERS = {key: 7 * number for number, (key, kind) in enumerate(RESOURCE_FIELDS.items()) if kind is int}

READER = """
import json
from nemo_lens.api.carrier import get_otel_resource_attributes
print(json.dumps(get_otel_resource_attributes()))
"""
PYTHON = [sys.executable, "-W", "error", "-c", READER]

# How the variable reaches the process that reads it; "$@" is that process, $text what was written.
WAYS = {
    "inherited": 'exec "$@"',
    "exported again": f'export {NAME}="${NAME}"; "$@"',
    "an empty environment": f'exec env -i {NAME}="${NAME}" "$@"',
    "a line to evaluate": 'eval "$line"; exec "$@"',
    "a file to source": f'file=$(mktemp); printf "%s\\n" "$line" > "$file"; unset {NAME}; . "$file"; rm "$file"; "$@"',
    "a shell of a shell": f'{NAME}= sh -c \'{NAME}=$1; export {NAME}; shift; exec "$@"\' sh "${NAME}" "$@"',
}


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("way", WAYS)
def test_attributes_go_through_a_shell(shell: str, way: str) -> None:
    """What is written is read back in another process, whatever shell is in between and however it hands it on."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    text = format_otel_resource_attributes({**AWKWARD, **NUMBERS})
    line = f"export {NAME}={shlex.quote(text)}"
    script = f"line=$1; shift; {WAYS[way]}"
    child = subprocess.run(
        [program, "-euc", script, shell, line, *PYTHON],
        env={**os.environ, NAME: text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    assert json.loads(child.stdout) == {**AWKWARD, **NUMBERS}


def test_integers_of_known_keys_are_integers_again_in_every_process() -> None:
    """Through three processes, each reading and writing anew, numbers stay numbers, and text stays text."""
    hop = """
import os, subprocess, sys
from nemo_lens.api.carrier import get_otel_resource_attributes, set_otel_resource_attributes
set_otel_resource_attributes({**get_otel_resource_attributes(), f"hop.{sys.argv[1]}": "007"})
"""
    reader = hop + READER
    nested = hop + "\nsubprocess.run([sys.executable, '-c', sys.argv[2], '2'], check=True)"
    sent = {**NUMBERS, "slurm.job.id": "0042", "mine": "7"}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", nested, "1", reader],
        env={**os.environ, NAME: format_otel_resource_attributes(sent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    assert json.loads(child.stdout) == {**sent, "hop.1": "007", "hop.2": "007"}


def test_what_is_wrong_is_said_once_in_the_process_that_reads_it() -> None:
    """Bad pairs of a foreign launcher cost themselves alone: one line on stderr for each, once."""
    program = READER + "\nget_otel_resource_attributes()"
    text = "team=a,no value,nv.dl.rank=3.5,=x,ok=b%20c,half=50%,nv.dl.world_size=8"
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, NAME: text},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(child.stdout) == {"team": "a", "nv.dl.rank": "3.5", "ok": "b c", "nv.dl.world_size": 8}
    complaints = child.stderr.splitlines()
    bad = ("'no value'", "'nv.dl.rank'", "'=x'", "'half=50%'")
    assert [next(name for name in bad if name in line) for line in complaints] == list(bad), child.stderr
