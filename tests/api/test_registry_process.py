"""Registry and gate under real forks and real signals, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")

_HAMMER_AND_FORK = """
import os, signal, sys, threading, time
from nemo_lens.api import state
from nemo_lens.api.groups import SpanRegistry

GROUPS = {"h.a", "h.b", "h.c"}
sys.setswitchinterval(1e-6)
stop = threading.Event()

def hammer():
    while not stop.is_set():
        SpanRegistry.register("h", sorted(GROUPS), {"p": sorted(GROUPS)})
        state.set_span_group_spec("p,zz")
        SpanRegistry.unregister("h")
        state.set_span_group_spec("all")

def child():
    signal.alarm(20)
    # Before anything is changed here, the gate is what the registry and the spec say together.
    found = SpanRegistry.groups("h")
    assert found in (set(), GROUPS), found
    assert state.enabled == found, (state.enabled, found)
    assert SpanRegistry.presets() == ({"p": GROUPS} if found else {})
    SpanRegistry.register("child", ["c"])
    state.set_span_group_spec("c")
    assert state.enabled == {"c"} and state.pending_span_groups() == ()
    SpanRegistry.clear()
    assert state.enabled == frozenset() and state.pending_span_groups() == ("c",)

# What is imported on the way to a first warning is imported before the first fork.
state.set_span_group_spec("warn once")
state.set_span_group_spec("all")
threads = [threading.Thread(target=hammer) for _ in range(2)]
for thread in threads:
    thread.start()
seen = set()
for number in range(200):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            met = 3 if SpanRegistry.groups("h") else 0
            child()
            code = met
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, 3):
        stop.set()
        sys.exit(f"fork {number}: {'hangs' if code == -signal.SIGALRM else code}")
    seen.add(code)
stop.set()
for thread in threads:
    thread.join()
# Forks met the registry both with the threads' content and without it, so they did fall in between.
print("forks that met:", *sorted(seen))
"""

_SIGNALS = """
import logging, signal, time  # telemetry that is set up has loaded logging
from nemo_lens.api import state
from nemo_lens.api.groups import SpanRegistry

calls = 0

def on_signal(signum, frame):
    global calls
    calls += 1
    SpanRegistry.register(f"signal{calls}", [f"s{calls}"])
    state.set_enabled_span_groups(())
    # Armed anew each time, so that handlers do not pile up on a slow machine.
    signal.setitimer(signal.ITIMER_REAL, 0.0003)

signal.signal(signal.SIGALRM, on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.001)
end = time.monotonic() + 20.0
number = 0
while calls < 300 and time.monotonic() < end:
    number += 1
    SpanRegistry.register("main", [f"m{number}"], allow_override=True)
    state.set_span_group_spec("main")
    if number % 50 == 0:
        for name in SpanRegistry.namespaces():
            SpanRegistry.unregister(name)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
before = calls
SpanRegistry.clear()
SpanRegistry.register("main", ["m"])
state.set_span_group_spec("m")
assert state.enabled == {"m"}
on_signal(0, None)
assert state.enabled == frozenset()
assert SpanRegistry.groups() == {"m", f"s{before + 1}"}
print("signals:", before)
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_fork_hangs_while_a_thread_changes_the_registry() -> None:
    """200 forks against a thread hammering registry and spec: no child hangs, each finds both whole and agreeing."""
    assert _run(_HAMMER_AND_FORK).strip() == "forks that met: 0 3"


def test_a_signal_handler_may_close_the_gate_at_any_moment() -> None:
    """A handler that registers and pins an empty set, as a shutdown does, never deadlocks with what it interrupts."""
    assert int(_run(_SIGNALS).rpartition(" ")[2]) > 10
