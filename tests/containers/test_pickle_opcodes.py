"""Our reading of opcodes against `pickletools`."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resize_pos.containers.pickle.opcodes import Opcode, read_opcodes
from tests.support.strategies import LAW

NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=5)
        | st.dictionaries(st.text(max_size=5), inner, max_size=5).map(OrderedDict)
    ),
    max_leaves=20,
)
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def read(data: bytes | io.BytesIO) -> tuple[list[Opcode], str]:
    """Give what is read of a pickle, and what it ends with."""
    found: list[Opcode] = []
    try:
        found.extend(read_opcodes(data))
    except Exception as error:
        return found, f"{type(error).__name__}"
    return found, ""


@LAW
@given(NESTED, st.sampled_from(PROTOCOLS))
def test_bytes_are_read_as_pickletools_reads_them(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    # NaN is not itself: what was read is compared as text.
    assert repr(read(data + b"after")) == repr(read(io.BytesIO(data + b"after")))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_half_a_surrogate_pair_is_read_as_pickle_writes_it(protocol: int) -> None:
    data = pickle.dumps("half \ud800", protocol)
    assert read(data) == read(io.BytesIO(data))
    assert read(data)[1] == ""


@LAW
@given(NESTED, st.sampled_from(PROTOCOLS), st.data())
def test_damage_is_found_where_pickletools_finds_it(
    value: object, protocol: int, data: st.DataObject
) -> None:
    whole = bytearray(pickle.dumps(value, protocol))
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[place:]
    else:
        whole[place] = data.draw(st.integers(0, 255))
    ours, our_end = read(bytes(whole))
    theirs, their_end = read(io.BytesIO(whole))
    assert our_end == their_end
    # Where an opcode of a file ends is known when the next one begins; the last one's never is.
    assert repr(ours[: len(theirs)]) == repr(theirs)
    assert len(ours) - len(theirs) <= (1 if our_end else 0)


@pytest.mark.parametrize("name", [b"a\\x41", "\u00e4".encode(), b"a\\q", b""])
def test_an_odd_name_is_left_to_pickletools(name: bytes) -> None:
    data = b"c" + name + b"\nmodule\n."
    assert read(data) == read(io.BytesIO(data))
