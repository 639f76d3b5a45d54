"""Colours, images and charts, each against something that knows better."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pytest
from PIL import Image

from resize_pos.core.geometry import Grid
from resize_pos.families.family import Role
from resize_pos.quality.pictures import Curve, StepPictures, picture_grid
from resize_pos.report.charts import Line, Mark, counted, line_chart, linear, powers
from resize_pos.report.colours import CIVIDIS, COSINES, VIRIDIS, Colour, Scale, gradient
from resize_pos.report.figures import draw
from resize_pos.report.png import encode_map
from tests.support.builders import smooth
from tests.support.report_cases import Parsed

RAMPS = {"viridis": VIRIDIS, "cividis": CIVIDIS}


def lightness(colour: Colour) -> float:
    """CIE L* of an sRGB colour: what the eye takes for brightness."""
    parts = [c / 255 for c in colour]
    linear_parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    light = 0.2126 * linear_parts[0] + 0.7152 * linear_parts[1] + 0.0722 * linear_parts[2]
    return 116 * light ** (1 / 3) - 16 if light > 0.008856 else 903.3 * light


@pytest.mark.parametrize("name", RAMPS)
def test_equal_steps_in_number_are_equal_steps_in_brightness(name: str) -> None:
    steps = np.array([lightness(colour) for colour in RAMPS[name]])
    assert len(steps) == 256
    assert np.all(np.diff(steps) > -0.2)  # never darker, but for rounding to 8 bits
    fitted = np.linspace(steps[0], steps[-1], 256)
    assert np.abs(steps - fitted).max() < 5
    assert steps[-1] - steps[0] > 70


def test_the_published_colours_are_met() -> None:
    # matplotlib's tables at 0, 1/4, 1/2, 3/4 and 1
    viridis = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)]
    found = [VIRIDIS[round(at * 255 / 4)] for at in range(5)]
    assert np.abs(np.array(found) - viridis).max() <= 6


def test_a_scale_has_ends_and_room() -> None:
    assert (COSINES.index(-1), COSINES.index(0), COSINES.index(1)) == (0, 128, 255)
    assert COSINES.index(-7) == 0 and COSINES.index(7) == 255
    assert Scale.around([2.0, 5.0]) == Scale(2.0, 5.0)
    for lone in ([3.0, 3.0], [0.0], []):
        scale = Scale.around(lone)
        assert scale.low < scale.high
        assert 0.4 < scale.part(lone[0] if lone else 0.0) < 0.6


def test_an_image_is_read_back_by_another_library() -> None:
    values = tuple(
        tuple(float(np.sin(3 * row + column)) for column in range(7)) for row in range(4)
    )
    image = Image.open(io.BytesIO(encode_map(values, COSINES, VIRIDIS)))
    assert image.size == (7, 4)
    pixels = np.asarray(image.convert("RGB"))
    for row in range(4):
        for column in range(7):
            assert tuple(pixels[row, column]) == VIRIDIS[COSINES.index(values[row][column])]


def test_a_legend_has_the_colours_of_the_map() -> None:
    stops = gradient(VIRIDIS).split(", ")
    assert (stops[0], stops[-1], len(stops)) == ("#440154", "#fde725", 10)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1, 1), (0, 1.414), (-0.37, 1), (0, 0.004), (0, 77), (0, 1234.5)]
)
def test_ticks_are_few_round_and_span_the_data(low: float, high: float) -> None:
    axis = linear("x", low, high)
    assert axis.low <= low + 1e-9 and high - 1e-9 <= axis.high
    assert 3 <= len(axis.ticks) <= 8
    for tick in axis.ticks:
        assert len(f"{tick:g}") <= 6


def points(chart: str, kind: str) -> list[list[tuple[float, float]]]:
    """Read the strokes of a line back."""
    found = re.search(rf'class="line {kind}" d="([^"]+)"', chart)
    assert found is not None
    strokes = [stroke for stroke in found[1].split("M") if stroke]
    return [[(float(a), float(b)) for a, b in (p.split() for p in s.split("L"))] for s in strokes]


def test_a_chart_puts_points_where_they_belong() -> None:
    curve = Curve((0.0, 0.5, 1.0), (1.0, 0.0, -1.0))
    axes = linear("<x>", 0, 1), linear("y & z", -1, 1)
    chart = line_chart("a <title>", *axes, [Line("before", curve)])
    ((first, middle, last),) = points(chart, "before")
    assert first[0] < middle[0] < last[0] and first[1] < middle[1] < last[1]  # down is larger
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.2)
    assert middle[1] == pytest.approx((first[1] + last[1]) / 2, abs=0.2)
    page = Parsed(chart)
    assert {"a <title>", "<x>", "y & z"} <= {words for _, words in page.texts}


def test_what_a_logarithm_cannot_show_is_a_gap() -> None:
    curve = Curve((1.0, 2.0, 3.0, 4.0), (0.5, 0.1, 0.0, 0.01))
    axes = counted("f", 4.0), powers("share", -5)
    chart = line_chart("t", *axes, [Line("after", curve)], [Mark(3.0, "end")])
    assert [len(stroke) for stroke in points(chart, "after")] == [2, 1]
    assert 'class="mark"' in chart
    assert axes[0].ticks == (1.0, 2.0, 3.0, 4.0)


def pair(before: tuple[int, int], after: tuple[int, int]) -> StepPictures:
    sides = [
        picture_grid(smooth(*grid, 16)[None].astype(np.float64), np.ones((1, 2, 16)))
        for grid in (before, after)
    ]
    return StepPictures("pos", *sides)


@pytest.mark.parametrize("role", [Role.ABSOLUTE, Role.RELATIVE])
def test_grids_become_maps(role: Role) -> None:
    similarity, norms, *curves = draw(pair((5, 9), (7, 12)), role)
    assert [p.caption for p in similarity.pairs] == ["middle", "top left", "top right", "bottom"]
    for both in (*similarity.pairs, *norms.pairs):
        assert (both.before.height, both.before.width) == (5, 9)
        assert (both.after.height, both.after.width) == (7, 12)
        assert both.before.text != both.after.text
    assert "prefix rows have norms 4, 4" in norms.words
    assert [figure.title for figure in curves] == ["Similarity against distance", "Spectrum"]


@pytest.mark.parametrize("role", [Role.SEQUENCE, Role.RELATIVE, Role.DISTANCE])
@pytest.mark.parametrize("turned", [False, True])
def test_sequences_become_curves(role: Role, turned: bool) -> None:
    before, after = ((9, 1), (15, 1)) if turned else ((1, 9), (1, 15))
    figures = draw(pair(before, after), role)
    assert not any(figure.pairs for figure in figures)
    assert [len(figure.charts) for figure in figures] == [3, 1, 1, 1]
    for figure in figures:
        for chart in figure.charts:
            assert len(points(chart, "before")[0]) <= len(points(chart, "after")[0]) + 1


def test_a_text_that_grows_keeps_its_positions_apart() -> None:
    chart = draw(pair((1, 10), (1, 20)), Role.SEQUENCE)[1].charts[0]
    (before,), (after,) = points(chart, "before"), points(chart, "after")
    assert before[0][0] == after[0][0]
    assert before[9][0] == pytest.approx(after[9][0], abs=0.1)  # position 9 is position 9


def test_a_table_without_variance_is_drawn_without_complaint() -> None:
    constant = picture_grid(np.ones((1, 3, 4, 5)))
    zero = picture_grid(np.zeros((1, 6, 8, 5)))
    figures = draw(StepPictures("pos", constant, zero), Role.ABSOLUTE)
    assert len(figures) == 4
    assert not any("nan" in chart for figure in figures for chart in figure.charts)


def test_one_cell_is_a_grid_too() -> None:
    one = picture_grid(np.ones((1, 1, 1, 4)))
    figures = draw(StepPictures("pos", one, picture_grid(np.ones((1, 2, 2, 4)))), Role.ABSOLUTE)
    assert Grid(1, 1) == one.grid
    assert all(math.isfinite(float(n)) for n in re.findall(r"[\d.]+", figures[-1].charts[0])[:9])
