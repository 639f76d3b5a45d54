"""Numbers → ok / warn / fail, with the reason in words.

A table is judged against the envelope: what the proper kernels make of the same source between the
same two grids (`measures/likeness.py`). The constants below are the margins around that envelope.
They were chosen on some trained tables and tested on others; docs/artifacts.md shows both. The
checks judge structure. Only an evaluation can judge accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from resize_pos.core.conventions import Coordinates, Resampling
from resize_pos.quality.checks import SEVERITY, Check, Level
from resize_pos.quality.measures.catalogue import MEASURES, Limit, Measured, Peer
from resize_pos.quality.table_health import Health, HealthKind

# Each pair: up to the first is ok, up to the second a warning, beyond it a failure. A limit is the
# constant or the envelope's own value times the factor, whichever is larger.
NORM_MARGIN = ((0.78, 1.16), (0.66, 1.35))  # factors on the lowest and highest honest norm ratio
GAIN = ((0.70, 1.30), (0.65, 1.45))  # vs the nearest honest result; only if norms are off, too
# The same whatever the norms are, if positions differ by more than this times the source's: methods
# that restore deviations restore all of it, not more.
GAIN_OF_POSITIONS = (1.4, 1.6)
DEVIATION_OFF = 1.03
NORM_USUAL = (0.86, 1.16)  # outside this range the report says why, and which method keeps norms
NORM_OFF = (0.93, 1.08)  # norms outside of this are "off too"
UNLIKENESS = (0.45, 0.62)
UNLIKE_BY_KERNEL = 3.0  # of the envelope, beyond the first limit: kernels that were fitted have 2.2
MISPLACED = (0.07, 0.11)
FOREIGN_CELLS = (0.08, 0.20)
FOREIGN_CHANNELS = (0.10, 0.25)
MEAN_SHIFT = (0.35, 0.70)
ENVELOPE_FACTORS = (1.25, 1.6)
FEWEST_CELLS = 4  # of the smaller grid; with fewer, likeness is not judged
SMALL = 16  # with fewer cells honest results differ more, so these limits apply:
SMALL_LIMITS = {
    "unlikeness": (0.60, 0.72),
    "foreign_channels": (0.16, 0.30),
    "mean_shift": (0.45, 0.80),
}
NEIGHBOUR_DEFICIT_OK = 0.15  # only ever a warning
PREFIX_CHANGE = (1e-6, 0.1)
WINDOW_PROMINENCE = 0.3
ZERO_OFFSET = (0.1, 0.5)
ASYMMETRY_GROWTH = 0.1
OFFSET_ZERO_UNLIKE = (0.40, 0.80)  # the same at offset zero alone
OFFSETS_UNLIKE = (0.35, 0.45)  # distance to the nearest convention ÷ variation of a relative table
OFFSETS_UNLIKE_MOST = (0.40, 0.55)  # as far as the envelope may widen it: a table of zeros has 1
MIXING_LOSS = 0.02  # float32 loses 1e-7, float16 1e-3, bfloat16 4e-3
WINDOW_KEPT = 0.95  # cosine of the mean window; honest transfers keep more than 0.99
WINDOW_SHARE = 0.02  # of the variance; noise of 7×7 windows has as much

# The measures that say whether a table looks like an honest resize: their limits, and the words
# for a table beyond them.
_LIKENESS: tuple[tuple[str, tuple[float, float], str], ...] = (
    ("misplaced", MISPLACED, "cells resemble cells that are {:.0%} of the image away"),
    ("foreign_cells", FOREIGN_CELLS, "{:.0%} of the cells are unlike what any resize gives there"),
    ("foreign_channels", FOREIGN_CHANNELS, "{:.0%} of the channels do not follow the source's"),
    ("unlikeness", UNLIKENESS, "the table differs by {:.0%} from the nearest honest resize"),
    ("mean_shift", MEAN_SHIFT, "the mean vector moved by {:.1f} deviations"),
)


def judge(
    measured: Measured,
    health: Health | None = None,
    *,
    resampling: Resampling | None = None,
    stretched: bool = True,
    image: bool = True,
) -> tuple[Check, ...]:
    """Judge one table; a measure that is absent is not judged.

    `health` is the source's. `stretched`: the new grid should cover the same extent as the old one;
    false for a text table that only gets longer. `image`: the thresholds were measured on this kind
    of table; if false, a check can warn but not fail.
    """
    values = measured.values
    checks = list(_prefix(values))
    if health is not None and health.is_empty:
        return (*checks, nothing_to_preserve(health))
    checks += _norms(values, measured.peers)
    if stretched:
        checks += [*_place(values), *_neighbours(values), *_window(values)]
    if not image:
        checks = [_at_most_a_warning(check) for check in checks]
    checks += [*_offsets(values), *_mixing(values), *_tiling(values)]
    if health is not None:
        checks += _source(health)
    return (*checks, *_libraries(measured.peers, resampling))


def judge_limits(measured: Measured, limits: Iterable[Limit]) -> tuple[Check, ...]:
    """Return a failed check for each measure above a limit that the user set."""
    checks = []
    for limit in limits:
        value = limit.value(measured)
        if value is not None and value > limit.limit:
            meaning = MEASURES.get(limit.measure, "relative distance to that library's result")
            detail = f"{limit.measure} is {value:.4g}, above --max {limit.limit:g} ({meaning})"
            checks.append(Check("limit", Level.FAIL, detail))
    return tuple(checks)


def _level(value: float, bounds: tuple[float, float]) -> Level:
    return Level.OK if value <= bounds[0] else Level.WARN if value <= bounds[1] else Level.FAIL


def _at_most_a_warning(check: Check) -> Check:
    if check.level is not Level.FAIL or check.name == "prefix":
        return check
    return replace(check, level=Level.WARN)


def nothing_to_preserve(health: Health) -> Check:
    """Warn of a source without content. What looks random may hide a little that was learned."""
    verb, then = "is", ""
    if health.kind is HealthKind.UNTRAINED:
        verb, then = "looks", " if so,"
    words = f"the source table {verb} {health.detail};{then} interpolation had nothing to preserve"
    return Check("content", Level.WARN, words)


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


def _norms(values: Mapping[str, float], peers: tuple[Peer, ...]) -> Iterator[Check]:
    if "norm_ratio" not in values:
        return
    ratio = values["norm_ratio"]
    detail = f"norms {'fall' if ratio < 1 else 'grow'} by {abs(ratio - 1):.1%}"
    if abs(ratio - 1) < 0.0005:
        detail = "norms are kept"
    # The envelope was computed on a sample, so the table's own value is taken from the same sample.
    judged = values.get("norm_sampled", ratio)
    level = _scale_level(values, judged)
    if level is Level.OK:
        usual = NORM_USUAL[0] <= ratio <= NORM_USUAL[1]
        why = "averaging does to a rough table" if ratio < 1 else "honest resizes of this table do"
        rough = "" if usual else f", as {why}{_better(ratio, peers)}"
        yield Check("norms", level, f"{detail}{rough}")
        return
    low, high = _norm_envelope(values)
    if low <= judged <= high:  # the lengths alone are usual; the values behind them are not
        yield Check("norms", level, f"{detail}, but {_little_of(values['gain'])}")
        return
    usual_range = f"honest resizes of this table give {low:.0%} to {high:.0%}"
    word = "scaled?" if level is Level.FAIL else f"expect to fine-tune{_better(ratio, peers)}"
    yield Check("norms", level, f"{detail}, {usual_range}: {word}")


def _little_of(gain: float) -> str:
    if gain < 1:
        return f"only {max(gain, 0):.0%} of the values of an honest resize are in it"
    return f"positions differ {gain:.1f} times as much as in an honest resize: sharpened or scaled"


def _norm_envelope(values: Mapping[str, float]) -> tuple[float, float]:
    """Return the honest range; 1 always lies in it, since norms can be restored."""
    low, high = values.get("norm_honest_low", 1.0), values.get("norm_honest_high", 1.0)
    return min(low, 1.0), max(high, 1.0)


def _scale_level(values: Mapping[str, float], ratio: float) -> Level:
    cells = values.get("fewest_cells", SMALL)
    if cells < FEWEST_CELLS:
        return Level.OK
    low, high = _norm_envelope(values)
    gain = values.get("gain", 1.0)
    too_small, too_large = ratio < NORM_OFF[0], ratio > NORM_OFF[1]
    if cells < SMALL:  # few cells say little of norms
        too_small = too_large = False
    too_different = values.get("channel_std_ratio", 1.0) > DEVIATION_OFF
    level = Level.OK
    for index, beyond in enumerate((Level.WARN, Level.FAIL)):
        (least, most), (weakest, strongest) = NORM_MARGIN[index], GAIN[index]
        scaled = (too_small and gain < weakest) or (too_large and gain > strongest)
        scaled = scaled or (too_different and gain > GAIN_OF_POSITIONS[index])
        if not low * least <= ratio <= high * most or scaled:
            level = beyond
    return level


def _better(ratio: float, peers: tuple[Peer, ...]) -> str:
    """Name the convention that keeps norms best, if it is clearly better, and --restore-norms."""
    restore = "--restore-norms all of them" if ratio < 1 else ""
    clear = [p for p in peers if abs(p.norm_ratio - 1) < abs(ratio - 1) - 0.03]
    if not clear:
        return f"; {restore.replace(' all of', ' would keep')}" if restore else ""
    # Another coordinate rule would move positions, so only half-pixel centres are suggested.
    straight = [p for p in clear if p.resampling.coordinates is Coordinates.HALF_PIXEL]
    best = min(straight or clear, key=lambda peer: abs(peer.norm_ratio - 1))
    words = f"{best.resampling} (--like {best.convention}) would keep {best.norm_ratio:.0%}"
    return "; " + ", ".join(part for part in (words, restore) if part)


def limits_of(name: str, bounds: tuple[float, float], values: Mapping[str, float]) -> list[float]:
    """Return the two limits of a measure for this table: the constants, or wider ones."""
    honest = values.get(f"{name}_honest", 0.0)
    cells = values.get("fewest_cells", SMALL)
    if cells < SMALL:
        bounds = SMALL_LIMITS.get(name, bounds)
    if name == "foreign_cells":  # one cell may always be unlike
        bounds = max(bounds[0], 1.01 / cells), max(bounds[1], 1.51 / cells)
    return [
        max(bound, factor * honest) for bound, factor in zip(bounds, ENVELOPE_FACTORS, strict=True)
    ]


def is_like_an_honest_one(measured: Measured) -> bool:
    """Whether a table is not so unlike every honest result that no kernel can have made it."""
    values = measured.values
    usual, most = limits_of("unlikeness", UNLIKENESS, values)
    by_a_kernel = UNLIKE_BY_KERNEL * values.get("unlikeness_honest", 0.0)
    return values.get("unlikeness", 0.0) <= max(usual, min(most, by_a_kernel))


def in_place(measured: Measured) -> bool:
    """Whether no cell resembles another place more than its own, however much it changed."""
    values = measured.values
    most = limits_of("misplaced", MISPLACED, values)[0]
    return values.get("misplaced", 1.0) <= most


def _place(values: Mapping[str, float]) -> Iterator[Check]:
    if "unlikeness" not in values:
        return
    if values["fewest_cells"] < FEWEST_CELLS:
        words = "the grid is too small to tell whether each cell is in its place"
        yield Check("place", Level.OK, words)
        return
    found: list[tuple[Level, str]] = []
    for name, bounds, words in _LIKENESS:
        low, high = limits_of(name, bounds, values)
        level = _level(values[name], (low, high))
        if level is not Level.OK:
            found.append((level, words.format(values[name])))
    if not found:
        yield Check("place", Level.OK, "every position is where it was")
        return
    level = max((level for level, _ in found), key=SEVERITY.__getitem__)
    words = next(words for one, words in found if one is level)
    yield Check("place", level, f"{words}{_geometry(values)}")


def _geometry(values: Mapping[str, float]) -> str:
    """Say what the affine fit of retrieved places looks like."""
    scales = {k: values[k] for k in ("affine_scale_h", "affine_scale_w") if k in values}
    if values.get("lost_cells", 0.0) > 0.8:
        return ": nothing of the source is left, re-initialised or another model's table"
    if values.get("affine_cross", 0.0) > 0.5:
        return ": rows follow columns, height and width look swapped"
    if any(scale < -0.5 for scale in scales.values()):
        return ": the table looks mirrored"
    parts = {"affine_scale_h": "height", "affine_scale_w": "width"}
    cut = [
        f"{scales[name]:.0%} of the {word}"
        for name, word in parts.items()
        if name in scales and 0.1 < scales[name] < 0.9
    ]
    if cut and values.get("affine_residual", 9.0) < 1:
        return f": the new grid covers {' and '.join(cut)} of the image, it looks cropped"
    return ""


def _neighbours(values: Mapping[str, float]) -> Iterator[Check]:
    if "neighbour_deficit" not in values:
        return
    deficit = values["neighbour_deficit"]
    like = values.get("unlikeness", 1.0) <= limits_of("unlikeness", UNLIKENESS, values)[0]
    if deficit <= NEIGHBOUR_DEFICIT_OK or like:
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


def offset_limits(values: Mapping[str, float]) -> tuple[tuple[float, float], float]:
    """Return the limits for offset zero and for asymmetry: the constants, or the envelope's."""
    honest = values.get("zero_offset_honest", 0.0)
    least, most = (max(c, f * honest) for c, f in zip(ZERO_OFFSET, ENVELOPE_FACTORS, strict=True))
    growth = ENVELOPE_FACTORS[0] * values.get("asymmetry_honest", 0.0)
    return (least, most), max(ASYMMETRY_GROWTH, growth)


def _offsets(values: Mapping[str, float]) -> Iterator[Check]:
    if "zero_offset_change" not in values:
        return
    (least, most), most_growth = offset_limits(values)
    change = values["zero_offset_change"]
    level = _level(change, (least, most))
    detail = "offset zero is kept" if change < 5e-4 else f"offset zero changes by {change:.1%}"
    if level is Level.OK and change > ZERO_OFFSET[0]:
        detail += ", as averaging does to a peak"
    yield Check("zero offset", level, detail)
    growth = values["asymmetry_after"] - values["asymmetry_before"]
    if growth > most_growth:
        words = f"offsets Δ and −Δ differ more than before (by {growth:.2f}): not centred?"
        yield Check("symmetry", Level.WARN, words)


def _mixing(values: Mapping[str, float]) -> Iterator[Check]:
    if "mixing_loss" not in values:
        return
    loss, scale = values["mixing_loss"], values["mixing_scale"]
    if scale < 1:
        yield Check(
            "mixing",
            Level.WARN,
            f"the grid shrinks to ×{scale:.2f}: a layer over patches cannot be kept on fewer of "
            f"them (W′·R differs from W by {loss:.1%}); expect to fine-tune",
        )
    elif loss > MIXING_LOSS:
        words = f"W′·R differs from W by {loss:.1%}: rounded, or not made by pseudo-inverse"
        yield Check("mixing", Level.WARN, words)
    else:
        words = f"on the old grid the layer is what it was (W′·R = W to {loss:.0e})"
        yield Check("mixing", Level.OK, words)


def _tiling(values: Mapping[str, float]) -> Iterator[Check]:
    if "window_kept" not in values:
        return
    kept, plain = values["window_kept"], values["window_kept_plain"]
    if values["window_share"] < WINDOW_SHARE:
        words = "the source hardly repeats with the window, so there was little to tile"
        yield Check("window", Level.OK, words)
        return
    level = Level.OK if kept >= WINDOW_KEPT else Level.WARN
    words = f"the window that repeats is kept (cosine {kept:.2f}; interpolated: {plain:.2f})"
    yield Check("window", level, words)


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
