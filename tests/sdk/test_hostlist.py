"""SLURM's node lists: membership without expanding them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.sdk.resources.hostlist import hostlist_contains

# As `scontrol show hostnames` expands them.
EXPANDED = {
    "vm": "vm",
    "gpu-a[1-2],gpu-b[07-08]": "gpu-a1 gpu-a2 gpu-b07 gpu-b08",
    "rack[1-2]-n[01-03,12]": "rack1-n01 rack1-n02 rack1-n03 rack1-n12 rack2-n01 rack2-n02 rack2-n03 rack2-n12",
    "n[8-10]": "n8 n9 n10",
    "n[08-10]": "n08 n09 n10",
    "n[8-010]": "n8 n9 n10",
    "n[098-101]": "n098 n099 n100 n101",
    "n[1,1-2]": "n1 n2",
    "n[1-2][3-4]": "n13 n14 n23 n24",
    "[1-2]": "1 2",
    "a,,b,": "a b",
    "node-1.cluster_x": "node-1.cluster_x",
    "": "",
}
NEAR_MISSES = (
    "n n0 n1 n01 n001 n2 n3 n7 n8 n08 n008 n9 n09 n10 n010 n11 n011 n97 n098 n0098 n099 n100 n101 n102 n13 n24"
)


@pytest.mark.parametrize("hostlist", EXPANDED)
def test_a_list_names_what_slurm_expands_it_to(hostlist: str) -> None:
    """Each host of the expansion is in the list, and near ones and those of other lists are not."""
    named = set(EXPANDED[hostlist].split())
    tried = {*" ".join(EXPANDED.values()).split(), *NEAR_MISSES.split(), "", "N1", "vm1", "xn1", "n1x", "n٣", "n-1"}
    assert {host for host in tried if hostlist_contains(hostlist, host)} == named


@pytest.mark.parametrize(
    "hostlist",
    [
        "n[1-2", "n]", "n[]", "n[2-1]", "n[1-2]]", "n[1-2-3]", "n[1 - 2]", "a b", "n[+1]", "n[a-b]", "n[-1]", "n[1-]",
        "n[1,]", "n[[1]]", "(null)", "n[٣]", "n[1x2]", "n{1}", "n[9999999999999999999]", "n[1-9999999999999999999]",
        "a\n", "ok,n[", "n\0",
    ],
)  # fmt: skip
def test_a_malformed_list_says_nothing(hostlist: str) -> None:
    """It is an error, and a bounded message shows where, also when the host stands in front of what is malformed."""
    for host in ("n1", "ok", "a"):
        with pytest.raises(ValueError, match=r"^node list"):
            hostlist_contains(hostlist, host)
    with pytest.raises(ValueError, match=r"^node list") as problem:
        hostlist_contains("ok," + "x" * 100_000 + hostlist, "ok")
    assert len(str(problem.value)) < 250


def test_a_huge_list_is_not_expanded() -> None:
    """A few characters that name more hosts than there is memory are read within the test's time."""
    hostlist = "n" + "[0-999999999999999999]" * 6
    assert hostlist_contains(hostlist, "n" + "7" * 90)
    assert not hostlist_contains(hostlist, "n" + "7" * 90 + "x")
    assert not hostlist_contains(",".join(f"m[{n}-999999999]x[1-9]" for n in range(5000)), "m0x0")


_literal = st.text("ab1-", min_size=1, max_size=2)


@st.composite
def _ranges(draw: st.DrawFn) -> tuple[str, list[str]]:
    texts, numbers = [], []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, 120))
        last = first + draw(st.integers(0, 15))
        width = draw(st.integers(1, 4))
        start = str(first).zfill(width)
        texts.append(start if first == last and draw(st.booleans()) else f"{start}-{str(last).zfill(width)}")
        numbers += [str(number).zfill(len(start)) for number in range(first, last + 1)]
    return f"[{','.join(texts)}]", numbers


_piece = st.one_of(_literal.map(lambda text: (text, [text])), _ranges())
_expression = st.lists(_piece, min_size=1, max_size=3).map(
    lambda pieces: (
        "".join(text for text, _ in pieces),
        {"".join(chosen) for chosen in itertools.product(*(names for _, names in pieces))},
    )
)


@given(st.lists(_expression, min_size=1, max_size=3), st.text("ab01289-", max_size=6))
def test_membership_is_that_of_the_expansion(expressions: list[tuple[str, set[str]]], other: str) -> None:
    """Whatever the list, a host is in it exactly when expanding it would name the host."""
    hostlist = ",".join(text for text, _ in expressions)
    expanded = set().union(*(names for _, names in expressions))
    some = sorted(expanded)[:: max(1, len(expanded) // 20)]
    for host in {*some, other, *(host + "0" for host in some), *(host[:-1] for host in some)}:
        assert hostlist_contains(hostlist, host) == (host in expanded), (hostlist, host)


@given(st.text("ab01-[],. ()٣", max_size=30), st.text("ab01", max_size=5))
def test_any_text_is_read_or_refused(hostlist: str, host: str) -> None:
    """Nothing but ``ValueError`` comes of what is no list."""
    try:
        hostlist_contains(hostlist, host)
    except ValueError:
        pass
