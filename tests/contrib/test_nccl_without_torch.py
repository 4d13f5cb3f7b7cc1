"""``contrib.nccl`` where torch is not installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("nemo_lens.contrib", reason="the contrib wheel is not installed")

# As if torch were not installed, whether it is or not.
PRELUDE = 'import sys; sys.modules["torch"] = None\n'


def run(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(program)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_importing_it_imports_nothing() -> None:
    """Importing the module neither fails nor loads anything of a third party."""
    run(
        """
        before = set(sys.modules)
        import nemo_lens.contrib.nccl
        added = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert added <= {*sys.stdlib_module_names, "nemo_lens"}, added
        """
    )


@pytest.mark.parametrize(
    "call",
    [
        "nccl.instrument_nccl()",
        "nccl.serialize_context()",
        "nccl.deserialize_context(None)",
        "nccl.extract_nccl_context(None)",
        "nccl.send_context(1)",
        "nccl.recv_context(0)",
        "instrument('nccl')",
    ],
)
def test_calling_it_says_what_to_install(call: str) -> None:
    """Each function raises an ImportError with the command that installs what it needs."""
    done = run(
        f"""
        from nemo_lens.api import instrument
        from nemo_lens.contrib import nccl
        try:
            {call}
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install 'nemo-lens-contrib[nccl]'" in done.stdout


def test_undoing_it_needs_no_torch() -> None:
    """As nothing was patched, there is nothing to undo and nothing to complain about."""
    run("from nemo_lens.api import uninstrument; assert uninstrument('nccl') is None")
