"""A log-log line plot as SVG; readable on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 64
_BESIDE, _LINE_HEIGHT = 90, 15  # names within so many pixels of each other would overlap
_COLOURS = ("#8a8f98", "#2f81f7", "#d4760a", "#8957e5")


def log_log(series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """Draw one line per series, with its name at its end."""
    points = [point for line in series.values() for point in line]
    low_x, high_x = _decades(x for x, _ in points)
    low_y, high_y = _decades(y for _, y in points)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / (high_x - low_x)
        up = (math.log10(y) - low_y) / (high_y - low_y)
        return (
            _MARGIN + across * (_WIDTH - 2 * _MARGIN - 60),
            _HEIGHT - _MARGIN - up * (_HEIGHT - 1.5 * _MARGIN),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#768390">'
    ]
    for decade in range(low_x, high_x + 1):
        x, bottom = place(10.0**decade, 10.0**low_y)
        _, top = place(10.0**decade, 10.0**high_y)
        parts.append(_line(x, bottom, x, top))
        parts.append(
            f'<text x="{x:.0f}" y="{bottom + 18:.0f}" text-anchor="middle">{10**decade:,}</text>'
        )
    for decade in range(low_y, high_y + 1):
        left, y = place(10.0**low_x, 10.0**decade)
        right, _ = place(10.0**high_x, 10.0**decade)
        parts.append(_line(left, y, right, y))
        parts.append(
            f'<text x="{left - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{10.0**decade:g}</text>'
        )
    lines = {name: [place(*point) for point in sorted(line)] for name, line in series.items()}
    names = _apart({name: places[-1] for name, places in lines.items()})
    for colour, (name, places) in zip(_COLOURS, lines.items(), strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        x, y = names[name]
        parts.append(f'<text x="{x + 10:.0f}" y="{y + 4:.0f}" fill="{colour}">{name}</text>')
    parts.append(
        f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 16}" text-anchor="middle">{x_label}</text>'
    )
    middle = _HEIGHT / 2
    parts.append(
        f'<text x="16" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle:.0f})">{y_label}</text></svg>\n'
    )
    return "\n".join(parts)


def _apart(ends: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Move names down, from the top on, until none lies on another."""
    placed: dict[str, tuple[float, float]] = {}
    for name, (x, y) in sorted(ends.items(), key=lambda end: end[1][1]):
        for other_x, other_y in placed.values():
            if abs(x - other_x) < _BESIDE and y - other_y < _LINE_HEIGHT:
                y = other_y + _LINE_HEIGHT
        placed[name] = (x, y)
    return placed


def _decades(values: Iterable[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values]
    return math.floor(min(logs)), math.ceil(max(logs))


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        'stroke="#768390" stroke-opacity="0.3"/>'
    )
