"""How an output is cut into parts: the rules of S3 hold for every output."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resize_pos.containers.remote.parts import LARGEST_COPY, MOST_PARTS, SMALLEST, OutputPiece, cut

MIB, GIB = 1 << 20, 1 << 30

LENGTHS = st.one_of(
    st.integers(0, 12 * MIB),
    st.sampled_from([1, SMALLEST - 1, SMALLEST, SMALLEST + 1, 6 * GIB, 500 * GIB]),
)


@st.composite
def outputs(draw: st.DrawFn) -> list[OutputPiece]:
    pieces, offset = [], 0
    for length, kept in draw(st.lists(st.tuples(LENGTHS, st.booleans()), min_size=1, max_size=30)):
        pieces.append(OutputPiece(length, offset if kept else None))
        offset += length + 3
    return pieces


@settings(max_examples=300, deadline=None)
@given(outputs(), st.booleans())
def test_the_rules_hold(pieces: list[OutputPiece], copies: bool) -> None:
    parts = cut(pieces, copies=copies)
    total = sum(piece.length for piece in pieces)
    assert sum(part.length for part in parts) == total
    assert len(parts) <= MOST_PARTS
    position = 0
    for number, part in enumerate(parts, start=1):
        assert part.start == position
        position += part.length
        assert part.length >= SMALLEST or number == len(parts)
        if part.source is not None:
            assert copies
            assert part.length <= LARGEST_COPY
            assert _origin(pieces, part.start, part.length) == part.source


def _origin(pieces: list[OutputPiece], start: int, length: int) -> int | None:
    position = 0
    for piece in pieces:
        if position <= start and start + length <= position + piece.length:
            return None if piece.source is None else piece.source + start - position
        position += piece.length
    return None


def test_a_short_header_borrows_and_the_rest_is_copied() -> None:
    parts = cut(
        [OutputPiece(MIB), OutputPiece(200 * MIB, 100), OutputPiece(2 * MIB), OutputPiece(9, 900)],
        copies=True,
    )
    assert [(part.start, part.length, part.source) for part in parts] == [
        (0, 5 * MIB, None),
        (5 * MIB, 196 * MIB, 100 + 4 * MIB),
        (201 * MIB, 2 * MIB + 9, None),
    ]


def test_long_copies_are_split() -> None:
    parts = cut([OutputPiece(20 * GIB, 0)], copies=True)
    assert len(parts) == 80
    assert all(part.source == part.start for part in parts)


def test_an_empty_output_is_one_part() -> None:
    assert [part.length for part in cut([], copies=True)] == [0]
