"""Similarity maps in a terminal: half blocks in colour, letters of rising darkness without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise

import click

from resize_pos.cli.terminal import say, say_drawing, tell, wants_colour, width
from resize_pos.quality.pictures import Map, SimilarityMap, TablePictures
from resize_pos.report.colours import COSINES, VIRIDIS, Colour

_LETTERS = " .:-=+*#%@"
_BARS = "▁▂▃▄▅▆▇█"
_GAP = 3
_SMALLEST = 14  # columns that a small grid is enlarged to
_CUBE = (0, 95, 135, 175, 215, 255)  # levels of the 6×6×6 colours of a 256-colour terminal


def show_pictures(pictures: TablePictures, *, indent: int = 2) -> None:
    """Draw how similar a few cells are to all the others; a sequence as lines of bars."""
    room = width() - indent
    begin = " " * indent
    if 1 in (pictures.grid.height, pictures.grid.width):
        _show_lines(pictures, begin, room)
        return
    coloured = has_colour()
    across = 1 if coloured else 2  # letters are half as wide as they are high
    maps = [_fitted(found, room // across) for found in pictures.similarity]
    columns = len(maps[0][0]) * across
    count = max(1, min(len(maps), (room + _GAP) // (columns + _GAP)))
    draw = _in_colour if coloured else _in_letters
    marks = [
        _marked(found, values) for found, values in zip(pictures.similarity, maps, strict=True)
    ]
    drawn = [draw(values, mark) for values, mark in zip(maps[:count], marks, strict=False)]
    sign = "◆" if coloured else "[]"
    tell(f"similarity (cosine) of one cell ({sign}) with every other, mean removed:", indent=indent)
    for lines in zip(*drawn, strict=True):
        say_drawing(begin + (" " * _GAP).join(lines))
    places = [
        f"row {found.row + 1} col {found.column + 1}".ljust(columns)
        for found in pictures.similarity[:count]
    ]
    say((begin + (" " * _GAP).join(places).rstrip(), "dim"))
    say_drawing(f"{begin}-1 {_legend(coloured)} 1")


def has_colour() -> bool:
    """Tell whether colours will be seen."""
    wanted = wants_colour()
    return sys.stdout.isatty() if wanted is None else wanted


def _show_lines(pictures: TablePictures, begin: str, room: int) -> None:
    tell("similarity (cosine, -1 to 1) of one position with every other:", indent=len(begin))
    found = {(one.row, one.column): one for one in pictures.similarity}
    labels = [f"{one.row + one.column + 1} of {pictures.grid.cells}" for one in found.values()]
    size = max(map(len, labels))
    for label, one in zip(labels, found.values(), strict=True):
        values = [value for row in one.values for value in row]
        kept = _averaged(values, min(len(values), room - size - 2))
        say(f"{begin}{label:>{size}}  {''.join(_pick(_BARS, value) for value in kept)}")


def _fitted(found: SimilarityMap, room: int) -> Map:
    """Make a map as wide as it should be: small ones are enlarged, wide ones averaged."""
    columns = len(found.values[0])
    if columns > room:
        rows = max(1, round(len(found.values) * room / columns))
        narrow = [_averaged(row, room) for row in found.values]
        return tuple(
            zip(*(_averaged(column, rows) for column in zip(*narrow, strict=True)), strict=True)
        )
    factor = max(1, min(_SMALLEST // columns, room // columns))
    return tuple(
        tuple(value for value in row for _ in range(factor))
        for row in found.values
        for _ in range(factor)
    )


def _marked(found: SimilarityMap, values: Map) -> tuple[int, int]:
    """Return where the middle of the chosen cell lies in a map that was enlarged or averaged."""
    rows, columns = len(found.values), len(found.values[0])
    down = (2 * found.row + 1) * len(values) // (2 * rows)
    across = (2 * found.column + 1) * len(values[0]) // (2 * columns)
    return down, across


def _averaged(values: Sequence[float], count: int) -> tuple[float, ...]:
    """Average neighbours until so many numbers are left."""
    bounds = [round(at * len(values) / count) for at in range(count + 1)]
    return tuple(sum(values[low:high]) / (high - low) for low, high in pairwise(bounds))


def _in_colour(values: Map, mark: tuple[int, int]) -> list[str]:
    """Put two rows into one line of half blocks, the upper one as foreground."""
    lines = []
    for at in range(0, len(values), 2):
        lower = values[at + 1] if at + 1 < len(values) else None
        line = []
        for column, value in enumerate(values[at]):
            if mark in ((at, column), (at + 1, column)):
                line.append(click.style("◆", fg="black", bg="white"))
                continue
            below = None if lower is None else _colour(lower[column])
            line.append(click.style("▀", fg=_colour(value), bg=below))
        lines.append("".join(line))
    return lines


def _in_letters(values: Map, mark: tuple[int, int]) -> list[str]:
    return [
        "".join(
            "[]" if (at, column) == mark else _pick(_LETTERS, value) * 2
            for column, value in enumerate(row)
        )
        for at, row in enumerate(values)
    ]


def _pick(letters: str, value: float) -> str:
    return letters[min(int(COSINES.part(value) * len(letters)), len(letters) - 1)]


def _legend(coloured: bool) -> str:
    if not coloured:
        return f"[{_LETTERS}]"
    steps: Iterable[float] = (at / 12 - 1 for at in range(25))
    return "".join(click.style("█", fg=_colour(value)) for value in steps)


def _colour(value: float) -> Colour | int:
    """Give a value's colour, as exactly as the terminal can show it."""
    red, green, blue = VIRIDIS[COSINES.index(value)]
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return red, green, blue
    places = [min(range(6), key=lambda at: abs(_CUBE[at] - part)) for part in (red, green, blue)]
    return 16 + 36 * places[0] + 6 * places[1] + places[2]
