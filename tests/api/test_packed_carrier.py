"""Carriers as bytes: what torch.distributed carries between ranks, with the ranks left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.api.fallbacks import (
    CARRIER_BLOCK_BYTES,
    LONGEST_CARRIER_BYTES,
    pack_carrier,
    packed_size,
    unpack_carrier,
)

TRACEPARENT = "00-000000000000000000000000000000ab-00000000000000cd-01"
_words = st.text(max_size=30)
_carriers = st.dictionaries(_words, _words, max_size=8)


@given(_carriers)
def test_what_is_packed_is_unpacked(carrier: dict[str, str]) -> None:
    """Every text comes back as it was, a lone surrogate too, but for empty keys and what holds the separator."""
    packed = pack_carrier(carrier, CARRIER_BLOCK_BYTES)
    kept = {key: value for key, value in carrier.items() if key and "\0" not in key + value}
    assert unpack_carrier(packed) == kept
    assert packed_size(packed) == len(packed) >= CARRIER_BLOCK_BYTES
    assert packed_size(packed[:CARRIER_BLOCK_BYTES]) == len(packed)


@given(_carriers, st.integers(0, 40), st.integers(1, 255))
def test_cut_padded_and_overwritten(carrier: dict[str, str], count: int, byte: int) -> None:
    """What is shorter or longer than it was packed, or does not end in a zero, is an empty carrier."""
    packed = pack_carrier(carrier, 256, 512)
    for bad in (
        packed[: -count or None][:-1],
        packed[:count],
        packed + bytes(count + 1),
        packed + bytes([byte]) * (count + 1),
        bytes([byte]) + packed,
        packed[count + 1 :],
    ):
        assert unpack_carrier(bad) == {}
    assert unpack_carrier(packed[:-1] + bytes([byte])) == {}


@given(st.binary(max_size=600) | st.binary(max_size=64).map(lambda tail: b"NLC1" + tail))
def test_foreign_bytes(data: bytes) -> None:
    """Bytes of anybody's never raise, and what is read in them is text by text."""
    found = unpack_carrier(data)
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in found.items())
    assert packed_size(data) <= LONGEST_CARRIER_BYTES


@given(st.binary(max_size=100), st.integers(0, 2**32 - 1))
def test_headers_that_lie(held: bytes, lie: int) -> None:
    """A header that says another size than there is, or that its carrier ends before or after it does, is no use."""

    def block(size: int, length: int) -> bytes:
        return b"NLC1" + size.to_bytes(4, "big") + length.to_bytes(4, "big") + held

    size = 12 + len(held)
    if lie != size:
        assert unpack_carrier(block(lie, len(held))) == {}
    if not len(held.rstrip(b"\0")) <= lie <= len(held):
        assert unpack_carrier(block(size, lie)) == {}


def test_a_long_carrier_needs_more_than_the_first_block() -> None:
    """A carrier up to 8 KiB is packed whole, and its first block says how much there is."""
    carrier = {"traceparent": TRACEPARENT, "tracestate": "a=" + "b" * 500, "baggage": "c=" + "d" * 7000}
    packed = pack_carrier(carrier, CARRIER_BLOCK_BYTES)
    assert CARRIER_BLOCK_BYTES < len(packed) <= LONGEST_CARRIER_BYTES
    assert packed_size(packed[:CARRIER_BLOCK_BYTES]) == len(packed)
    assert unpack_carrier(packed) == carrier
    assert unpack_carrier(packed[:CARRIER_BLOCK_BYTES]) == {}


@pytest.mark.parametrize("longest", [128, 512, LONGEST_CARRIER_BYTES])
def test_what_does_not_fit_is_left_out(longest: int) -> None:
    """Past the limit baggage goes first, then the trace state; the trace itself is kept."""
    carrier = {"baggage": "c=" + "d" * (longest - 200), "traceparent": TRACEPARENT, "tracestate": "a=" + "b" * 250}
    packed = pack_carrier(carrier, 128, longest)
    assert len(packed) <= longest
    found = unpack_carrier(packed)
    assert found["traceparent"] == TRACEPARENT
    assert "baggage" not in found or longest == 128
    assert ("tracestate" in found) == (longest > 128)
    assert unpack_carrier(pack_carrier({"baggage": "x" * 9000}, 128, longest)) == {}


@pytest.mark.parametrize("odd", [{3: "x"}, {"a": None}, {"a": b"x"}, {None: None}, {"a": ["x"]}, {"a": 1}, {"": "x"}])
def test_what_is_not_text_is_left_out(odd: Any) -> None:
    """Keys and values of other types, which a propagator of somebody's may write, do not spoil the rest."""
    assert unpack_carrier(pack_carrier({**odd, "traceparent": TRACEPARENT}, 128)) == {"traceparent": TRACEPARENT}
