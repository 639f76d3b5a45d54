"""Numbers → ok / warn / fail, with the reason in words.

The thresholds were measured on real weights: 97 honest resizes and 89 broken ones of two trained
networks (docs/artifacts.md). They judge structure; only an evaluation can judge accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from resize_pos.core.conventions import Coordinates, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.measures.catalogue import MEASURES, Limit, Measured, Peer
from resize_pos.quality.table_health import Health, HealthKind

LABEL = (
    "structural checks on the weights alone; accuracy is for an evaluation, or for "
    "`resize-pos verify --images`"
)


class Level(StrEnum):
    """How a check came out; ordered by severity in `_SEVERITY`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_SEVERITY = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}


@dataclass(frozen=True, slots=True)
class Check:
    """One judged measure."""

    name: str
    level: Level
    detail: str


# Each pair: up to the first is ok, up to the second a warning. "Honest" is the range over 97
# resizes by the libraries' own conventions, between 7 grids of two trained networks.
NORM_OK = (0.86, 1.16)  # honest .83 – 1.13
NORM_TOLERABLE = (0.74, 1.35)
DISPLACEMENT = (0.05, 0.12)  # honest ≤ .065
AFFINE_SCALE = (0.10, 0.22)  # distance from 1; honest .96 – 1.12
NEIGHBOUR_DEFICIT_OK = 0.15  # honest ≤ .12; never a failure by itself
PREFIX_CHANGE = (1e-6, 0.1)  # honest 0
LOST_CELLS = 0.8  # "nearly everywhere": no cell resembles any cell of the source
# Not from those networks: these only ever warn.
SHIFT_OK = 0.55  # of a cell of the coarser grid; nearest neighbour alone makes half a cell
WINDOW_PROMINENCE = 0.15
ZERO_OFFSET = (0.1, 0.5)
ASYMMETRY_GROWTH = 0.1


def judge(
    measured: Measured,
    health: Health | None = None,
    *,
    resampling: Resampling | None = None,
    stretched: bool = True,
    image: bool = True,
) -> tuple[Check, ...]:
    """Judge one table; a measure that is absent is not judged.

    `health` is the source's. `stretched`: the new grid should cover what the old one covered, which
    a text table that only grows longer does not. `image`: the thresholds were measured on tables
    such as this one; elsewhere they warn and never fail.
    """
    values = measured.values
    checks = list(_prefix(values))
    if health is not None and health.is_empty:
        return (*checks, _nothing_to_preserve(health))
    checks += _norms(values, measured.peers, resampling)
    if stretched:
        checks += [*_place(values), *_neighbours(values), *_window(values)]
    if not image:
        checks = [_at_most_a_warning(check) for check in checks]
    checks += _offsets(values)
    if health is not None:
        checks += _source(health)
    return (*checks, *_libraries(measured.peers, resampling))


def judge_limits(measured: Measured, limits: Iterable[Limit]) -> tuple[Check, ...]:
    """Fail what passes a limit of the user's own."""
    checks = []
    for limit in limits:
        value = limit.value(measured)
        if value is not None and value > limit.limit:
            meaning = MEASURES.get(limit.measure, "relative distance to that library's result")
            detail = f"{limit.measure} is {value:.4g}, above --max {limit.limit:g} ({meaning})"
            checks.append(Check("limit", Level.FAIL, detail))
    return tuple(checks)


def worst(checks: Iterable[Check]) -> Level:
    """Give the most severe level; ok when there is nothing to judge."""
    return max((check.level for check in checks), key=_SEVERITY.__getitem__, default=Level.OK)


def _level(value: float, bounds: tuple[float, float]) -> Level:
    return Level.OK if value <= bounds[0] else Level.WARN if value <= bounds[1] else Level.FAIL


def _at_most_a_warning(check: Check) -> Check:
    if check.level is not Level.FAIL or check.name == "prefix":
        return check
    return replace(check, level=Level.WARN)


def _nothing_to_preserve(health: Health) -> Check:
    return Check(
        "content",
        Level.WARN,
        f"the source table is {health.detail}; interpolation had nothing to preserve",
    )


def _source(health: Health) -> Iterator[Check]:
    if health.kind is HealthKind.SHUFFLED:
        yield Check("source", Level.WARN, f"the source table is {health.detail}")
    for sign in health.signs:
        yield Check("source", Level.WARN, f"in the source already: {sign.detail}")


def _prefix(values: Mapping[str, float]) -> Iterator[Check]:
    if "prefix_change" not in values:
        return
    change = values["prefix_change"]
    level = _level(change, PREFIX_CHANGE)
    detail = "prefix and suffix rows are unchanged"
    if level is not Level.OK:
        detail = f"prefix or suffix rows changed by {change:.1%}; no resize touches them"
    yield Check("prefix", level, detail)


def _norms(
    values: Mapping[str, float], peers: tuple[Peer, ...], resampling: Resampling | None
) -> Iterator[Check]:
    if "norm_ratio" not in values:
        return
    ratio = values["norm_ratio"]
    detail = f"norms {'fall' if ratio < 1 else 'grow'} by {abs(ratio - 1):.1%}"
    if abs(ratio - 1) < 0.0005:
        detail = "norms are kept"
    if NORM_OK[0] <= ratio <= NORM_OK[1]:
        yield Check("norms", Level.OK, detail)
    elif NORM_TOLERABLE[0] <= ratio <= NORM_TOLERABLE[1]:
        yield Check("norms", Level.WARN, f"{detail}: expect to fine-tune{_better(ratio, peers)}")
    elif resampling is not None and _explained(ratio, peers, resampling):
        # The method itself does this to such a table: a rough table, not a broken transfer.
        words = f"{detail}: this table is rough, so averaging cancels it; expect to fine-tune"
        yield Check("norms", Level.WARN, f"{words}{_better(ratio, peers)}")
    else:
        yield Check("norms", Level.FAIL, f"{detail}: far outside what resizing does; scaled?")


def _explained(ratio: float, peers: tuple[Peer, ...], resampling: Resampling) -> bool:
    same = [p.norm_ratio for p in peers if p.resampling == resampling]
    return any(abs(ratio - theirs) < 0.05 * theirs for theirs in same)


def _better(ratio: float, peers: tuple[Peer, ...]) -> str:
    """Name the convention that keeps norms best, if it is clearly better."""
    clear = [p for p in peers if abs(p.norm_ratio - 1) < abs(ratio - 1) - 0.03]
    if not clear:
        return ""
    # Another coordinate rule moves positions: rather stay with half-pixel centres.
    straight = [p for p in clear if p.resampling.coordinates is Coordinates.HALF_PIXEL]
    best = min(straight or clear, key=lambda peer: abs(peer.norm_ratio - 1))
    return f"; {best.resampling} (--like {best.convention}) would keep {best.norm_ratio:.0%}"


def _place(values: Mapping[str, float]) -> Iterator[Check]:
    if "displacement" not in values:
        return
    if values["lost_cells"] > LOST_CELLS:
        yield Check(
            "place",
            Level.FAIL,
            "new cells resemble no cell of the source: re-initialised, or another model's table",
        )
        return
    off = values["displacement"]
    scales = {k: values[k] for k in ("affine_scale_h", "affine_scale_w") if k in values}
    level = _level(off, DISPLACEMENT)
    for scale in scales.values():
        level = max(level, _level(abs(scale - 1), AFFINE_SCALE), key=_SEVERITY.__getitem__)
    if level is Level.OK:
        shift = max(abs(values.get(f"affine_shift_{axis}", 0.0)) for axis in "hw")
        if shift > SHIFT_OK:
            words = f"the whole table is shifted by {shift:.1f} cells of the coarser grid"
            yield Check("place", Level.WARN, words)
        else:
            yield Check("place", Level.OK, "every position is where it was")
        return
    yield Check("place", level, _misplaced(values, scales, off))


def _misplaced(values: Mapping[str, float], scales: Mapping[str, float], off: float) -> str:
    away = f"positions are {off:.0%} of the grid away from where they belong"
    if values.get("affine_cross", 0.0) > 0.5:
        return f"{away}: rows follow columns, height and width look swapped"
    if any(scale < -0.5 for scale in scales.values()):
        return f"{away}: the table looks mirrored"
    parts = {"affine_scale_h": "height", "affine_scale_w": "width"}
    cut = [
        f"{scales[name]:.0%} of its {word}"
        for name, word in parts.items()
        if name in scales and 0.1 < scales[name] < 1 - AFFINE_SCALE[0]
    ]
    wide = [scale for scale in scales.values() if scale > 1 + AFFINE_SCALE[0]]
    if wide and off <= DISPLACEMENT[0]:
        return (
            f"the grid is stretched by {max(wide) - 1:.0%} about its middle, as aligned corners do "
            "to a small grid"
        )
    if cut and values.get("affine_residual", 9.0) < 1:
        return f"the new grid covers {' and '.join(cut)} of the image: it looks cropped"
    return f"{away}: the grid was read wrongly (1-D resampled, cut off or shuffled?)"


def _neighbours(values: Mapping[str, float]) -> Iterator[Check]:
    if "neighbour_deficit" not in values:
        return
    deficit = values["neighbour_deficit"]
    if deficit <= NEIGHBOUR_DEFICIT_OK:
        yield Check("smoothness", Level.OK, "neighbours are as similar as before")
        return
    yield Check(
        "smoothness",
        Level.WARN,
        f"neighbouring cells are less similar than in the source (cosine −{deficit:.2f} at equal "
        "distance): rough, noisy or patched together",
    )


def _window(values: Mapping[str, float]) -> Iterator[Check]:
    if values.get("window_prominence", 0.0) > WINDOW_PROMINENCE:
        yield Check(
            "window",
            Level.WARN,
            f"the source repeats itself every {values['window_period']:.0f} cells, as tables of "
            "windowed attention do; interpolation stretches that period, the windows stay",
        )


def _offsets(values: Mapping[str, float]) -> Iterator[Check]:
    if "zero_offset_change" not in values:
        return
    change = values["zero_offset_change"]
    level = _level(change, ZERO_OFFSET)
    detail = "offset zero is kept" if change < 5e-4 else f"offset zero changes by {change:.1%}"
    yield Check("zero offset", level, detail)
    growth = values["asymmetry_after"] - values["asymmetry_before"]
    if growth > ASYMMETRY_GROWTH:
        words = f"offsets Δ and −Δ differ more than before (by {growth:.2f}): not centred?"
        yield Check("symmetry", Level.WARN, words)


def _libraries(peers: tuple[Peer, ...], resampling: Resampling | None) -> Iterator[Check]:
    """Say what to expect if a trainer resizes the same table in its own way."""
    others = [p for p in peers if p.resampling != resampling and p.distance > 5e-4]
    if resampling is None or not others:
        return
    far = max(others, key=lambda peer: peer.distance)
    known = next((p for p in others if p.convention == "hf"), None)
    words = [f"{known.distance:.1%} from transformers'"] if known is not None else []
    if known is None or known.resampling != far.resampling:
        words.append(f"{far.distance:.1%} from {far.convention}'s")
    yield Check("libraries", Level.OK, f"the values differ {' and '.join(words)} own resize")
