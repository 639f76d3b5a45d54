"""The figures of one table, before and after: maps, curves and spectra, with words for each."""

from __future__ import annotations

from collections.abc import Iterator

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.families.family import Role
from resize_pos.quality.pictures import Curve, Map, SimilarityMap, StepPictures, TablePictures
from resize_pos.report.charts import Axis, Line, Mark, counted, line_chart, linear, powers
from resize_pos.report.colours import CIVIDIS, COSINES, VIRIDIS, Colour, Scale, gradient
from resize_pos.report.png import data_uri, encode_map

_UNITS = {
    Role.ABSOLUTE: "cell",
    Role.RELATIVE: "offset",
    Role.DISTANCE: "distance",
    Role.SEQUENCE: "position",
}
_WINDOWED = (Role.RELATIVE, Role.DISTANCE)
_THIRDS = (1 / 3, 2 / 3)
_FAINTEST = -5  # lowest power of ten on the axis of a spectrum


@dataclass(frozen=True, slots=True)
class Marker:
    """A cell to point at, in percent of the picture."""

    top: float
    left: float
    height: float
    width: float


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a data URI."""

    address: str
    width: int
    height: int
    text: str  # alternative text for screen readers
    marker: Marker | None = None


@dataclass(frozen=True, slots=True)
class MapPair:
    """The same map before and after."""

    caption: str
    before: Picture
    after: Picture


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours stand for."""

    label: str
    low: str
    high: str
    stops: str  # of a CSS gradient


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: pairs of maps with a legend, or charts; and how to read it."""

    title: str
    words: str
    pairs: tuple[MapPair, ...] = ()
    legend: Legend | None = None
    charts: tuple[str, ...] = ()  # SVG


def draw(pictures: StepPictures, role: Role) -> tuple[Figure, ...]:
    """Draw all figures of a resized table."""
    flat = 1 in (pictures.before.grid.height, pictures.before.grid.width)
    unit = _UNITS.get(role, "position")
    spatial = _along(pictures, unit, role) if flat else _over(pictures, unit)
    whole = "window" if role in _WINDOWED else "table" if flat else "image"
    return (*spatial, _by_distance(pictures, unit, whole), _spectra(pictures, whole))


def _over(pictures: StepPictures, unit: str) -> Iterator[Figure]:
    """Draw a grid as maps."""
    before, after = pictures.before, pictures.after
    if before.slices and after.slices:
        yield _slices(before, after)
    pairs = []
    for old, new in zip(before.similarity, after.similarity, strict=True):
        place = _place(old, before)
        text = f"similarity of the {unit} {place} with every other"
        first, second = (_similarity(side, text) for side in (old, new))
        pairs.append(MapPair(place, first, second))
    yield Figure(
        "Similarity maps",
        f"Cosine between the vector of the marked {unit} and that of every other {unit}, the mean "
        "vector removed. After a good resize the second map is the first one on another grid.",
        tuple(pairs),
        Legend("cosine", "−1", "1", gradient(VIRIDIS)),
    )
    scale = Scale.around(value for side in (before, after) for row in side.norms for value in row)
    text = f"norm of the vector of every {unit}"
    maps = (_map(side.norms, scale, CIVIDIS, text) for side in (before, after))
    yield Figure(
        "Norm maps",
        f"Length of the vector of every {unit}, on one scale. Interpolation that averages makes "
        f"vectors shorter, first where the table is rough.{_beside(before)}",
        (MapPair("", *maps),),
        Legend("norm", _short(scale.low), _short(scale.high), gradient(CIVIDIS)),
    )


_PLANES = ("height × width", "depth × width", "depth × height")


def _slices(before: TablePictures, after: TablePictures) -> Figure:
    """Draw the three planes through the middle of a volume."""
    pairs = []
    for plane, old, new in zip(_PLANES, before.slices, after.slices, strict=True):
        text = f"similarity of the middle cell with the plane {plane} through it"
        first, second = (_similarity(side, text) for side in (old, new))
        pairs.append(MapPair(plane, first, second))
    return Figure(
        "Middle slices",
        "Cosine between the vector of the cell in the middle of the volume and the vectors in the "
        "three planes through it, the mean vector removed.",
        tuple(pairs),
        Legend("cosine", "−1", "1", gradient(VIRIDIS)),
    )


def _along(pictures: StepPictures, unit: str, role: Role) -> Iterator[Figure]:
    """Draw a sequence as curves."""
    before, after = pictures.before, pictures.after
    x = _extent(pictures, unit, role)
    charts = []
    seen = set()
    for old, new in zip(before.similarity, after.similarity, strict=True):
        at = old.row + old.column
        if at in seen:
            continue
        seen.add(at)
        curves = [_strip(side.values, role) for side in (old, new)]
        count = before.grid.cells
        title = f"cosine with {unit} {at + 1} of {count}, before and after"
        y = linear(f"cosine with {unit} {at + 1} of {count}", -1.0, 1.0)
        charts.append(line_chart(title, x, y, _both(*curves)))
    yield Figure(
        "Similarity",
        f"Cosine between the vector of one {unit} and that of every other, the mean vector "
        "removed. After a good resize both curves have the same course.",
        charts=tuple(charts),
    )
    norms = [_strip(side.norms, role) for side in (before, after)]
    top = max((value for curve in norms for value in curve.y), default=1.0) or 1.0
    chart = line_chart("norms before and after", x, linear("norm", 0.0, top), _both(*norms))
    yield Figure(
        "Norms", f"Length of the vector of every {unit}.{_beside(before)}", charts=(chart,)
    )


def _by_distance(pictures: StepPictures, unit: str, whole: str) -> Figure:
    curves = pictures.before.distance, pictures.after.distance
    low = min((value for curve in curves for value in curve.y), default=0.0)
    far = max((value for curve in curves for value in curve.x), default=1.0)
    chart = line_chart(
        "mean cosine against distance, before and after",
        linear(f"distance, as a part of the {whole}", 0.0, far),
        linear("mean cosine", min(low, 0.0), 1.0),
        _both(*curves),
    )
    words = (
        f"How similar two {unit}s are, by how far apart they lie in the {whole}. The curves should "
        "coincide: the new grid is finer or coarser, but covers the same."
    )
    return Figure("Similarity against distance", words, charts=(chart,))


def _spectra(pictures: StepPictures, whole: str) -> Figure:
    before, after = pictures.before, pictures.after
    limit = min(max(side.grid.height, side.grid.width) for side in (before, after))
    last = max((x for side in (before, after) for x in side.spectrum.x), default=1.0)
    marks = [Mark(float(limit), f"a grid of {limit} ends here")] if limit < last else []
    chart = line_chart(
        "share of variance against frequency, before and after",
        counted(f"frequency, half-periods per {whole}", last),
        powers("share of variance", _FAINTEST),
        _both(before.spectrum, after.spectrum),
        marks,
    )
    words = (
        "How much of the table's variance lies at which frequency. Beyond the mark the "
        "coarser grid can hold nothing: what a finer new table has there was made up by the "
        "interpolation, what a finer source had there is lost or folded back."
    )
    return Figure("Spectrum", words, charts=(chart,))


def _both(before: Curve, after: Curve) -> tuple[Line, Line]:
    return Line("before", before), Line("after", after)


def _extent(pictures: StepPictures, unit: str, role: Role) -> Axis:
    """Scale windows to the same extent; for text, count positions, because it may only grow."""
    if role is Role.SEQUENCE:
        longest = max(pictures.before.grid.cells, pictures.after.grid.cells)
        return linear(unit, 0.0, float(longest))
    low = -1.0 if role is Role.RELATIVE else 0.0
    return linear(
        f"{unit}, as a part of the {'window' if role in _WINDOWED else 'table'}", low, 1.0
    )


def _strip(values: Map, role: Role) -> Curve:
    """Read a map of one row or one column as a curve over its extent."""
    row = tuple(value for line in values for value in line)
    if role is Role.SEQUENCE:
        return Curve(tuple(map(float, range(len(row)))), row)
    places = [(index + 0.5) / len(row) for index in range(len(row))]
    if role is Role.RELATIVE:
        places = [2 * place - 1 for place in places]
    return Curve(tuple(places), row)


def _similarity(found: SimilarityMap, text: str) -> Picture:
    height, width = len(found.values), len(found.values[0])
    marker = Marker(100 * found.row / height, 100 * found.column / width, 100 / height, 100 / width)
    return _map(found.values, COSINES, VIRIDIS, text, marker)


def _map(
    values: Map, scale: Scale, ramp: tuple[Colour, ...], text: str, marker: Marker | None = None
) -> Picture:
    image = encode_map(values, scale, ramp)
    height, width = len(values), len(values[0])
    described = f"{height}×{width} map: {text}"
    return Picture(data_uri(image), width, height, described, marker)


def _place(found: SimilarityMap, side: TablePictures) -> str:
    """Say where in the image a cell lies."""
    down = (found.row + 0.5) / side.grid.height
    across = (found.column + 0.5) / side.grid.width
    rows, columns = ("top", "", "bottom"), ("left", "", "right")
    third = [sum(part > bound for bound in _THIRDS) for part in (down, across)]
    return f"{rows[third[0]]} {columns[third[1]]}".strip() or "middle"


def _beside(side: TablePictures) -> str:
    if not side.prefix_norms:
        return ""
    shown = ", ".join(_short(norm) for norm in side.prefix_norms[:8])
    more = " …" if len(side.prefix_norms) > 8 else ""
    rows = "row has norm" if len(side.prefix_norms) == 1 else "rows have norms"
    return f" The prefix {rows} {shown}{more}."


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
