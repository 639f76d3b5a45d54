"""docs/conventions.md lists every convention that the program knows, with its formula."""

from __future__ import annotations

import pytest

from docs_site.conventions import PAGE, filled
from resize_pos.core.conventions import Coordinates, Method, OffsetMethod, Resampling, Spacing
from resize_pos.transforms.kernels import operator

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_program() -> None:
    assert filled(TEXT) == TEXT  # to write them: python -m docs_site.conventions


@pytest.mark.parametrize("kind", [Coordinates, Method, OffsetMethod, Spacing])
def test_every_part_of_a_convention_is_explained(
    kind: type[Coordinates | Method | OffsetMethod | Spacing],
) -> None:
    before, *explained = TEXT.split("end -->")
    assert "absolute: begin" in before
    for part in kind:
        assert part.value in "".join(explained), part


def _keys(t: float, a: float) -> float:
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return near if t < 1 else far if t < 2 else 0.0


PLACES = {
    Coordinates.HALF_PIXEL: lambda i, n, m: (i + 0.5) * n / m - 0.5,
    Coordinates.CORNERS: lambda i, n, m: i * (n - 1) / (m - 1),
    Coordinates.OFFSET: lambda i, n, m: (i + 0.5) * n / (m + 0.1) - 0.5,
}


@pytest.mark.parametrize("rule", Coordinates)
def test_the_formulas_without_antialias_are_the_kernels(rule: Coordinates) -> None:
    """The page's formulas, written down again, give the weights of the program."""
    n, m = 7, 11
    made = operator(n, m, Resampling(Method.BICUBIC, antialias=False, coordinates=rule)).matrix
    for i in range(m):
        x = PLACES[rule](i, n, m)
        row = [0.0] * n
        for j in range(-3, n + 3):
            row[min(max(j, 0), n - 1)] += _keys(abs(x - j), -0.75)
        assert made[i] == pytest.approx(row, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(7, 11), (11, 4)])
def test_the_formulas_with_antialias_are_the_kernels(n: int, m: int) -> None:
    made = operator(n, m, Resampling(Method.BICUBIC, antialias=True)).matrix
    for i in range(m):
        x = PLACES[Coordinates.HALF_PIXEL](i, n, m)
        row = [_keys(abs(x - j) / max(n / m, 1), -0.5) for j in range(n)]
        assert made[i] == pytest.approx([weight / sum(row) for weight in row], abs=1e-12)
