"""A network namespace with nothing but loopback, for programs that bind every interface."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def own_network(why: str) -> list[str]:
    """Return the command that runs another one in a network of its own; skip the test where there is none.

    Args:
        why: what binds every interface, for the message of the skip.
    """
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        pytest.skip(f"{why} every interface, and unshare and ip are not here to keep that inside")
    enter = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--map-root-user", "--net"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{why} every interface, and this machine allows no network namespace to keep that inside")
    return [*enter, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
