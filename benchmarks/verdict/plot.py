"""Where the verdict's limits lie among honest and damaged tables, as one SVG.

python -m benchmarks.verdict.plot [--cases benchmarks/verdict.json] [--output docs/verdict.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.verdict.count import DAMAGED, RESULTS, Case, read_results
from resize_pos.quality import verdict

OUTPUT = Path(__file__).parents[2] / "docs" / "verdict.svg"
_LEFT, _WIDTH, _STRIP, _GAP, _BINS = 170, 470, 22, 34, 60
_GREEN, _RED = "#2da44e", "#cf222e"
NOT_MEASURED = float("nan")


def _over(name: str, bounds: tuple[float, float]) -> Callable[[Mapping[str, float]], float]:
    """Give a measure relative to its own limits: 1 is the first limit, 2 the second."""

    def placed(values: Mapping[str, float]) -> float:
        low, high = verdict.limits_of(name, bounds, values)
        value = values[name]
        return _between(value, (low, high))

    return placed


def _norms(values: Mapping[str, float]) -> float:
    """The same for norms: how far outside the honest range."""
    low, high = min(values["norm_honest_low"], 1.0), max(values["norm_honest_high"], 1.0)
    ratio = max(values["norm_sampled"], 1e-6)
    outside = max(low / ratio, ratio / high, 1.0)
    first, second = (
        (1 / least if low / ratio > ratio / high else most) for least, most in verdict.NORM_MARGIN
    )
    if outside <= first:
        return (outside - 1) / (first - 1)
    return 1 + (outside - first) / (second - first)


def _between(value: float, bounds: Sequence[float]) -> float:
    """Place a value between zero and its two limits."""
    first, second = bounds
    return value / first if value <= first else 1 + (value - first) / (second - first)


def _gain(values: Mapping[str, float]) -> float:
    """The gain counts only where norms are off in the same direction."""
    gain, ratio = values["gain"], values["norm_sampled"]
    if values["fewest_cells"] < verdict.SMALL:
        return NOT_MEASURED
    (weak, strong), (weakest, strongest) = verdict.GAIN
    if ratio > verdict.NORM_OFF[1] and gain > 1:
        return _between(gain - 1, (strong - 1, strongest - 1))
    if ratio < verdict.NORM_OFF[0] and gain < 1:
        return _between(1 - gain, (1 - weak, 1 - weakest))
    return 0.0


def _gain_of_positions(values: Mapping[str, float]) -> float:
    """It also counts where positions differ more than the source's."""
    if values.get("channel_std_ratio", 1.0) <= verdict.DEVIATION_OFF:
        return 0.0
    first, second = verdict.GAIN_OF_POSITIONS
    return _between(max(values["gain"] - 1, 0.0), (first - 1, second - 1))


def _prefix(values: Mapping[str, float]) -> float:
    """Prefix rows, in powers of ten: unchanged ones are at zero."""
    change = values.get("prefix_change", 0.0)
    if change <= verdict.PREFIX_CHANGE[0]:
        return 0.0
    least, most = np.log10(verdict.PREFIX_CHANGE)
    return float(1 + (np.log10(change) - least) / (most - least))


def _only_a_warning(name: str, limit: float) -> Callable[[Mapping[str, float]], float]:
    """A measure that never fails a table: beyond its limit it is drawn at most at 1.9."""
    return lambda values: min(max(values.get(name, 0.0), 0.0) / limit, 1.9)


MEASURES: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "unlikeness": _over("unlikeness", verdict.UNLIKENESS),
    "misplaced": _over("misplaced", verdict.MISPLACED),
    "foreign cells": _over("foreign_cells", verdict.FOREIGN_CELLS),
    "foreign channels": _over("foreign_channels", verdict.FOREIGN_CHANNELS),
    "mean shift": _over("mean_shift", verdict.MEAN_SHIFT),
    "norms": _norms,
    "gain": _gain,
    "the same where positions differ more": _gain_of_positions,
    "neighbour deficit (a warning at most; only where a table is unlike)": _only_a_warning(
        "neighbour_deficit", verdict.NEIGHBOUR_DEFICIT_OK
    ),
    "window prominence of the source (a warning at most)": _only_a_warning(
        "window_prominence", verdict.WINDOW_PROMINENCE
    ),
    "prefix rows (in powers of ten)": _prefix,
}
OFFSETS: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "distance to the nearest honest result, as a part of the table's variation": lambda values: (
        _between(values["offsets_unlikeness"], (values["offsets_ok"], values["offsets_most"]))
    ),
    "the same at offset zero alone": lambda values: _between(
        values["offset_zero_unlikeness"], (values["offset_zero_ok"], values["offset_zero_most"])
    ),
    "change of offset zero since the source (only where a table is unlike)": lambda values: (
        _between(values["zero_offset_change"], verdict.offset_limits(values)[0])
    ),
    "growth of asymmetry (a warning at most)": lambda values: min(
        max(values["asymmetry_after"] - values["asymmetry_before"], 0.0)
        / verdict.offset_limits(values)[1],
        1.9,
    ),
}
LAYERS: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "mixing loss of layers over patches (a warning at most)": lambda values: min(
        values.get("mixing_loss", NOT_MEASURED) / verdict.MIXING_LOSS, 1.9
    ),
    "window kept: 1 − cosine of the mean window (a warning at most)": lambda values: min(
        (1 - values.get("window_kept", NOT_MEASURED)) / (1 - verdict.WINDOW_KEPT), 1.9
    ),
    "window share (left of the first line nothing is judged; red: tables without windows)": (
        lambda values: values.get("window_share", NOT_MEASURED) / verdict.WINDOW_SHARE
    ),
}
# The block of a plot that shows each limit of `quality/verdict.py`, by the start of its title …
DRAWN: Mapping[str, str] = {
    "UNLIKENESS": "unlikeness",
    "MISPLACED": "misplaced",
    "FOREIGN_CELLS": "foreign cells",
    "FOREIGN_CHANNELS": "foreign channels",
    "MEAN_SHIFT": "mean shift",
    "NORM_MARGIN": "norms",
    "GAIN": "gain",
    "GAIN_OF_POSITIONS": "the same where positions differ more",
    "NEIGHBOUR_DEFICIT_OK": "neighbour deficit",
    "WINDOW_PROMINENCE": "window prominence",
    "PREFIX_CHANGE": "prefix rows",
    "OFFSETS_UNLIKE": "distance to the nearest honest result",
    "OFFSET_ZERO_UNLIKE": "the same at offset zero",
    "ZERO_OFFSET": "change of offset zero",
    "ASYMMETRY_GROWTH": "growth of asymmetry",
    "MIXING_LOSS": "mixing loss",
    "WINDOW_KEPT": "window kept",
    "WINDOW_SHARE": "window share",
}
# … and why a constant has none.
NOT_DRAWN: Mapping[str, str] = {
    "NORM_USUAL": "It only chooses words: no level depends on it.",
    "NORM_OFF": "It is part of the rule for `gain`, and that block applies it.",
    "DEVIATION_OFF": "It is part of the rule where positions differ more; that block applies it.",
    "UNLIKE_BY_KERNEL": "It says only which fitted kernels are believed.",
    "ENVELOPE_FACTORS": "They are part of every limit that is drawn relative to its envelope.",
    "FEWEST_CELLS": "It says which tables are judged at all; those below it are not drawn.",
    "SMALL": "It says which limits apply, and the blocks use those of each table.",
    "SMALL_LIMITS": "The blocks use them for every table with so few cells.",
    "OFFSETS_UNLIKE_MOST": "It bounds the limits of the first block of relative tables, as drawn.",
}
STRIPS = (
    ("honest, tuned on", False, False),
    ("honest, held out", False, True),
    ("damaged, tuned on", True, False),
    ("damaged, held out", True, True),
)
_MOST = 4.0  # of the scale; what lies beyond is drawn in the last bin


class Judged(Protocol):
    """A case of any kind of table."""

    @property
    def held_out(self) -> bool: ...
    @property
    def group(self) -> str: ...
    @property
    def measures(self) -> Mapping[str, float]: ...


Placed = Mapping[str, Callable[[Mapping[str, float]], float]]


def draw(found: Sequence[Case]) -> str:
    """Draw the measures of absolute tables."""
    judged = [c for c in found if c.measures.get("fewest_cells", 0) >= verdict.FEWEST_CELLS]
    return draw_strips(judged, MEASURES)


def draw_offsets(found: Sequence[Judged]) -> str:
    """Draw the measures of relative tables."""
    return draw_strips(found, OFFSETS)


def draw_strips(judged: Sequence[Judged], measures: Placed) -> str:
    """Draw one block of four strips per measure."""
    block = len(STRIPS) * _STRIP + _GAP
    height = len(measures) * block + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="#768390">'
    ]
    for index, (name, place) in enumerate(measures.items()):
        top = index * block + 20
        parts.append(f'<text x="4" y="{top - 4}" font-weight="bold">{name}</text>')
        for row, (words, damaged, held_out) in enumerate(STRIPS):
            placed = [
                place(case.measures)
                for case in judged
                if (case.group in DAMAGED) is damaged and case.held_out is held_out
            ]
            mine = [value for value in placed if not np.isnan(value)]
            y = top + row * _STRIP
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{words}</text>')
            parts += _strip(mine, y, _RED if damaged else _GREEN)
        for limit, words in ((1, "warn"), (2, "fail")):
            x = _LEFT + limit / _MOST * _WIDTH
            bottom = top + len(STRIPS) * _STRIP
            parts.append(f'<path d="M{x:.0f} {top - 2}V{bottom}" stroke="#768390"/>')
            parts.append(f'<text x="{x:.0f}" y="{bottom + 10}" text-anchor="middle">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _strip(values: Sequence[float], y: int, colour: str) -> list[str]:
    """Draw a histogram whose bars' heights are square roots of the shares."""
    if not values:
        return []
    clipped = np.clip(values, 0, _MOST * (1 - 1e-9))
    counts = np.histogram(clipped, _BINS, (0, _MOST))[0]
    heights = np.sqrt(counts / counts.max()) * (_STRIP - 4)
    wide = _WIDTH / _BINS
    return [
        f'<rect x="{_LEFT + i * wide:.1f}" y="{y + _STRIP - 2 - h:.1f}" width="{wide - 0.5:.1f}" '
        f'height="{h:.1f}" fill="{colour}"/>'
        for i, h in enumerate(heights)
        if h > 0
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    options.output.write_text(draw(read_results(options.cases)), encoding="utf-8")


if __name__ == "__main__":
    main()
