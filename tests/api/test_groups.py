"""SpanRegistry: names, presets, conflicts, resolution of a spec, and what an entry point registers."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.groups import SpanRegistry, register_provisional
from nemo_lens.api.state import reset_state

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def _fresh_registry() -> Iterator[None]:
    def forget() -> None:
        reset_state()
        SpanRegistry.clear()
        _diagnostics.forget_reported()

    forget()
    yield
    forget()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_names_are_stripped_and_lower_cased() -> None:
    """Namespaces, groups, presets and members are known by their stripped, lower-cased names."""
    SpanRegistry.register(" Trainer ", ["Train.Step ", "IO"], {" Default": [" train.STEP"]})
    assert SpanRegistry.namespaces() == ("trainer",)
    assert SpanRegistry.groups() == SpanRegistry.groups("TRAINER") == {"train.step", "io"}
    assert SpanRegistry.presets() == {"default": {"train.step"}}


@pytest.mark.parametrize("bad", ["", "  ", "all", " ALL ", "a,b"])
def test_a_name_that_no_spec_could_hold_is_refused(bad: str) -> None:
    """An empty name, ``all`` and a name with a comma raise ValueError wherever they stand and register nothing."""
    with pytest.raises(ValueError, match="namespace"):
        SpanRegistry.register(bad, ["g"])
    with pytest.raises(ValueError, match="group"):
        SpanRegistry.register("ns", ["fine", bad])
    with pytest.raises(ValueError, match="preset"):
        SpanRegistry.register("ns", ["g"], {bad: ["g"]})
    with pytest.raises(ValueError, match="preset 'p': group"):
        SpanRegistry.register("ns", ["g"], {"p": [bad]})
    assert SpanRegistry.namespaces() == ()


def test_one_string_is_not_taken_for_several_names() -> None:
    """``groups="io"`` raises TypeError instead of registering the groups i and o; so does a name that is no str."""
    with pytest.raises(TypeError, match="'io'"):
        SpanRegistry.register("ns", "io")
    with pytest.raises(TypeError, match="'io'"):
        SpanRegistry.register("ns", ["io"], {"default": "io"})
    with pytest.raises(TypeError, match="not int"):
        SpanRegistry.register("ns", [3])  # type: ignore[list-item]
    assert SpanRegistry.namespaces() == ()


def test_the_same_content_again_is_no_error() -> None:
    """Registering the same groups and presets again, in any order and spelling, changes no name."""
    SpanRegistry.register("ns", ["a", "b"], {"p": ["a", "b"]})
    SpanRegistry.register("ns", ("B", "a", "a"), {"P": ["b", "A"]})
    assert SpanRegistry.groups() == {"a", "b"}
    assert SpanRegistry.resolve("b")[0] == {"b", "B"}


@pytest.mark.parametrize(("groups", "presets"), [(["a"], None), (["a", "b"], {"p": ["a"]})])
def test_other_content_needs_allow_override(groups: list[str], presets: dict[str, list[str]] | None) -> None:
    """A namespace registered again with other groups or presets raises, naming what it holds; override replaces it."""
    SpanRegistry.register("ns", ["a", "b"])
    with pytest.raises(ValueError, match=r"'ns' is registered already.*a, b.*allow_override"):
        SpanRegistry.register("ns", groups, presets)
    assert SpanRegistry.groups() == {"a", "b"}
    assert SpanRegistry.presets() == {}
    SpanRegistry.register("ns", groups, presets, allow_override=True)
    assert SpanRegistry.groups() == set(groups)
    assert SpanRegistry.presets() == {name: set(members) for name, members in (presets or {}).items()}


def test_unregister_and_clear_forget() -> None:
    """An unregistered namespace leaves nothing behind, others stay, an unknown one is no error; clear empties."""
    SpanRegistry.register("one", ["a"], {"p": ["a"]})
    SpanRegistry.register("two", ["b"])
    SpanRegistry.unregister(" ONE")
    SpanRegistry.unregister("never there")
    assert SpanRegistry.namespaces() == ("two",)
    assert SpanRegistry.groups() == {"b"}
    assert SpanRegistry.presets() == {}
    SpanRegistry.clear()
    assert SpanRegistry.namespaces() == ()


def test_a_shared_group_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A group owned by another namespace is registered for both, with one WARNING that names group and owner."""
    SpanRegistry.register("one", ["shared", "a"])
    SpanRegistry.register("two", ["shared"])
    (message,) = _warnings(caplog)
    assert "'shared'" in message
    assert "'one'" in message
    SpanRegistry.unregister("two")
    assert SpanRegistry.groups() == {"shared", "a"}


def test_a_preset_member_nobody_registered_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown preset member gets one WARNING with the nearest group, and shows once somebody registers it."""
    SpanRegistry.register("one", ["checkpoint.save"], {"default": ["checkpoint.save", "checkpoint.sav"]})
    (message,) = _warnings(caplog)
    assert "'checkpoint.sav'" in message
    assert "did you mean 'checkpoint.save'?" in message
    assert SpanRegistry.presets() == {"default": {"checkpoint.save"}}
    SpanRegistry.register("two", ["checkpoint.sav"])
    assert SpanRegistry.presets() == {"default": {"checkpoint.save", "checkpoint.sav"}}


def test_presets_of_one_name_union_and_show_only_live_groups() -> None:
    """A preset is the union over all namespaces, without the groups of a namespace that has gone."""
    SpanRegistry.register("one", ["a", "x"], {"default": ["a"]})
    SpanRegistry.register("two", ["b"], {"default": ["b", "x"], "io": ["b"]})
    assert SpanRegistry.presets() == {"default": {"a", "b", "x"}, "io": {"b"}}
    assert SpanRegistry.presets("one") == {"default": {"a"}}
    SpanRegistry.unregister("one")
    assert SpanRegistry.presets() == {"default": {"b"}, "io": {"b"}}
    assert SpanRegistry.resolve("default")[0] == {"b"}


@pytest.mark.parametrize(
    ("spec", "enabled", "pending"),
    [
        ("", set(), ()),
        (" , ,", set(), ()),
        ("a", {"a"}, ()),
        (" A ,b,a", {"a", "b"}, ()),
        ("default", {"a", "b"}, ()),
        ("both", {"both", "c"}, ()),
        ("all", {"a", "b", "c", "both"}, ()),
        ("ALL,nope", {"a", "b", "c", "both"}, ("nope",)),
        ("zz,default,nope,ZZ", {"a", "b"}, ("nope", "zz")),
        ("awaited", set(), ("awaited",)),
        ("nothing", set(), ()),
    ],
)
def test_resolve(spec: str, enabled: set[str], pending: tuple[str, ...]) -> None:
    """A spec is a comma list of presets and groups; what opens nothing is pending, unless it is declared empty."""
    SpanRegistry.register(
        "ns",
        ["a", "b", "c", "both"],
        {"default": ["a", "b"], "both": ["c"], "awaited": ["not.yet"], "nothing": []},
    )
    assert SpanRegistry.resolve(spec) == (frozenset(enabled), pending)


@pytest.mark.parametrize("spec", ["default", "all"])
def test_with_nothing_registered_everything_is_pending(spec: str) -> None:
    """Before any library has registered, even ``default`` and ``all`` match nothing, and resolution says so."""
    assert SpanRegistry.resolve(spec) == (frozenset(), (spec,))


def test_the_enabled_set_holds_every_spelling() -> None:
    """A group opens under its own name and under each spelling it was registered with, by whichever library."""
    SpanRegistry.register("one", ["Train.Step"])
    SpanRegistry.register("two", ["TRAIN.STEP "])
    assert SpanRegistry.resolve("train.step")[0] == {"train.step", "Train.Step", "TRAIN.STEP", "TRAIN.STEP "}
    assert SpanRegistry.groups() == {"train.step"}


def test_what_an_entry_point_registered_gives_way_to_the_library(caplog: pytest.LogCaptureFixture) -> None:
    """The library's own register replaces provisional content without override and without a word; then it is firm."""
    register_provisional("ns", ["a"], {"default": ["a"]})
    register_provisional("ns", ["a", "b"])
    assert SpanRegistry.groups("ns") == {"a", "b"}
    SpanRegistry.register("ns", ["c"])
    assert SpanRegistry.groups() == {"c"}
    assert SpanRegistry.presets() == {}
    assert _warnings(caplog) == []
    with pytest.raises(ValueError, match="registered already"):
        SpanRegistry.register("ns", ["d"])


def test_an_entry_point_never_replaces_the_library() -> None:
    """What an entry point says of a namespace that registered itself is ignored; bad names still raise."""
    SpanRegistry.register("ns", ["a"])
    register_provisional("ns", ["b"])
    assert SpanRegistry.groups() == {"a"}
    with pytest.raises(ValueError, match="empty"):
        register_provisional("other", [""])


@pytest.mark.usefixtures("_eager_threads")
def test_no_registration_is_lost_between_threads() -> None:
    """Eight threads that register and unregister at once leave exactly what they meant to leave."""
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for number in range(60):
            SpanRegistry.register(f"ns{thread}.{number}", [f"g{thread}.{number}"])
            if number % 3 == 0:
                SpanRegistry.unregister(f"ns{thread}.{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SpanRegistry.groups() == {f"g{t}.{n}" for t in range(8) for n in range(60) if n % 3}
