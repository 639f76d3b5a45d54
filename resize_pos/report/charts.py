"""Line charts as small SVG documents. They contain only numbers and our own words: no user text.

Colours come from classes in the page's style sheet, so one chart works in both themes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.pictures import Curve

_WIDTH, _HEIGHT = 330, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 18, 12, 40  # half of the last number stands at the right
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: what it measures, from where to where, and where its ticks are."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def part(self, value: float) -> float:
        """Return the position of a value along the axis, 0 to 1."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(x) for x in (max(value, self.low), low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True, slots=True)
class Line:
    """A curve with the class that gives it its colour."""

    kind: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a word beside it."""

    at: float
    word: str


def linear(label: str, low: float, high: float) -> Axis:
    """Make an axis with ticks at round numbers; the ends are moved out to them."""
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    for factor in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0):
        if span / (step * factor) <= _MOST_TICKS:
            step *= factor
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(index * step for index in range(first, max(last, first + 1) + 1))
    return Axis(label, ticks[0], ticks[-1], ticks)


def counted(label: str, last: float) -> Axis:
    """Make an axis that counts from 1; it ends where the numbers end."""
    inner = linear(label, 0.0, last).ticks
    ticks = tuple(tick for tick in inner if 1 <= tick <= last and tick == int(tick))
    return Axis(label, 1.0, max(last, 2.0), tuple(dict.fromkeys((1.0, *ticks))))


def powers(label: str, low: int, high: int = 0) -> Axis:
    """Make an axis from 10^low to 10^high."""
    ticks = tuple(10.0**power for power in range(low, high + 1))
    return Axis(label, ticks[0], ticks[-1], ticks, logarithmic=True)


def line_chart(
    title: str, x: Axis, y: Axis, lines: Sequence[Line], marks: Sequence[Mark] = ()
) -> str:
    """Draw curves over two axes; `title` is the text for screen readers."""

    def across(value: float) -> float:
        return _LEFT + x.part(value) * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return _HEIGHT - _BOTTOM - y.part(value) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
    ]
    base, top, right = _HEIGHT - _BOTTOM, _TOP, _WIDTH - _RIGHT
    for tick in y.ticks:
        at = up(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{at + 3.5:.1f}" class="end">{_tick(tick, y)}</text>'
        )
    for tick in x.ticks:
        at = across(tick)
        parts.append(f'<path class="axis" d="M{at:.1f} {base}v4"/>')
        parts.append(f'<text x="{at:.1f}" y="{base + 16}" class="mid">{_tick(tick, x)}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {base}H{right}"/>')
    for mark in marks:
        at = across(mark.at)
        side, shift = ("end", -4) if x.part(mark.at) > 0.5 else ("start", 4)
        parts.append(f'<path class="mark" d="M{at:.1f} {top}V{base}"/>')
        parts.append(
            f'<text x="{at + shift:.1f}" y="{top + 9}" class="{side}">{escape(mark.word)}</text>'
        )
    for line in lines:
        path, pen = "", "M"
        for a, b in zip(line.curve.x, line.curve.y, strict=True):
            if y.logarithmic and b < y.low:
                pen = "M"  # no value here: leave a gap in the curve
                continue
            path += f"{pen}{across(a):.1f} {up(b):.1f}"
            pen = "L"
        if path:
            parts.append(f'<path class="line {line.kind}" d="{path}"/>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" class="mid">{escape(x.label)}</text>')
    height = (top + base) / 2
    parts.append(
        f'<text transform="translate(11 {height}) rotate(-90)" class="mid">{escape(y.label)}</text>'
    )
    return "".join([*parts, "</svg>"])


def _tick(value: float, axis: Axis) -> str:
    if axis.logarithmic:
        percent = value * 100
        return f"{percent:g} %"
    return f"{value:g}".replace("-", "−") if abs(value) > 1e-12 else "0"
