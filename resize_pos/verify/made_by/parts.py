"""What is wrong with parts of a table: which rows, which channels, which order, which values.

No kind of damage is assumed. The table is compared cell by cell and channel by channel with the
honest result, and the differences are described.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.quality.measures.sampling import Wide, median, products, ratio, spread, unit
from resize_pos.quality.verdict import MEAN_SHIFT

_SAME = 0.05  # relative distance up to which a row is the honest one
_OTHER = 0.25  # … and from which it is not
_EXACT = 0.03  # of the distance between honest results: so near is a part to one of them alone
_SPAN = 1.25  # times the largest distance between honest results
_MOST_BETWEEN = 0.1  # share of rows that may be neither
_ALIKE = 3.0  # times the distance of the honest ones: up to it, all differ alike
_FEWEST_SAME = 3  # one of four cells may equal the honest one by chance
_ROUNDED_TO_ZERO = 1e-5  # of the largest value: below it, float16 may round a row to zero
_FEW_STEPS = 4.0  # … and below that many steps (of 127: 3 % of the largest value) it lost little,
_WHOLE = 1e-3  # if all values are whole numbers of steps
_SURE = 0.98  # cosine of a channel with the one it was taken from
_DOUBTFUL = 0.9  # … and below which a channel may be another one
_SAMPLE = 256  # cells, or values, that are looked at
_FEW_VALUES = 16
_FLAT = 1e-5  # of the largest value: variation along an axis that is none,
_VARIES = 1e-3  # … and what an honest result must have of it
_MATTERS = 0.05  # of all sizes: negative values that no overshoot explains
_WRAPPED = 0.002  # share of the values
_RANDOM = 0.3  # cosine of neighbours; below it they have little in common
_OTHER_CELLS = "the honest cells of other places"
_MANY = 0.02  # share of the values that are the same,
_BEYOND = 1.05  # where the honest ones are that much larger,
_USUAL = 0.25  # … or that much of the usual size


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """What is wrong, by name and in words."""

    name: str
    detail: str
    foreign: NDArray[np.bool_] | None = None  # which cells (or channels) are not the honest ones
    axis: int = 1  # 1: `foreign` is about cells, 0: about channels
    at_border: bool = False  # all foreign cells are outermost ones
    near: float = _OTHER  # below this distance to another honest result, a part is not foreign

    def is_like(self, table: Wide, other: Wide) -> bool:
        """Whether most of the foreign parts are near another honest result, so not foreign."""
        if self.foreign is None:
            return False
        return bool(np.mean(_errors(table, other, self.axis)[self.foreign] < self.near) > 0.5)

    def is_usual(self, table: Wide, own: Wide, others: Sequence[Wide]) -> bool:
        """Whether honest results differ as much from `own`, too, in most foreign parts.

        Where the rest is exactly `own`, only a border may have been treated in another way: that
        kernel gives the other parts, too.
        """
        if self.foreign is None or self.near < _OTHER:
            return False
        mine = _distances(table, own, self.axis)
        span = np.max([_distances(rows, own, self.axis) for rows in others], axis=0)
        telling = ~self.foreign & (span > _SAME * float(median(span[self.foreign])))
        exact = telling.any() and float(median(mine[telling] / span[telling])) < _EXACT
        if exact and not self.at_border:
            return False
        return bool(np.mean(mine[self.foreign] <= _SPAN * span[self.foreign]) > 0.5)


def find_parts(table: Wide, honest: Wide, target: Grid, mean: Wide) -> Finding | None:
    """Compare the rows (cells × channels) of a table with the honest ones, all channels.

    `mean`: the source's.
    """
    if len(table) < 2 or not np.ptp(table, axis=0).any():
        return None  # zero or constant: the table's own values say so
    return (
        _rows(table, honest, target)
        or _channels(table, honest)
        or _order(table, honest, target)
        or _flat_axes(table, honest, target)
        or _mean(table, honest, mean)
    )


def _distances(table: Wide, honest: Wide, axis: int) -> Wide:
    apart: Wide = np.sqrt(((table - honest) ** 2).sum(axis=axis))
    return apart


def _errors(table: Wide, honest: Wide, axis: int) -> Wide:
    """Distance along one axis, relative to the honest size of that row or channel."""
    scale = np.sqrt((honest**2).sum(axis=axis))
    typical = np.sqrt(np.mean(scale**2))
    relative: Wide = _distances(table, honest, axis) / np.maximum(scale, 0.1 * typical + 1e-30)
    return relative


def _split(table: Wide, honest: Wide, axis: int) -> NDArray[np.bool_] | None:
    """Return which rows or channels are foreign, if all others are honest."""
    errors, apart = _errors(table, honest, axis), _distances(table, honest, axis)
    same, other = errors <= _SAME, errors >= _OTHER
    # A channel that is constant or zero is the same whatever was done to the others.
    telling = np.ptp(honest, axis=axis) > _VARIES * np.abs(honest).max()
    same &= telling
    few = same.sum() < max(0.25 * telling.sum(), _FEWEST_SAME)
    if not other.any() or few or (telling & ~same & ~other).mean() > _MOST_BETWEEN:
        return None
    # Training moves all values alike: short rows and weak channels differ more for their size.
    if float(median(apart[other])) <= _ALIKE * float(median(apart[same])):
        return None
    foreign: NDArray[np.bool_] = other | (telling & ~same)
    return foreign


def _rows(table: Wide, honest: Wide, target: Grid) -> Finding | None:
    errors, zero = _errors(table, honest, 1), _lost(table, honest)
    only_zero = zero.any() and np.mean(errors[~zero] <= _SAME) > 0.9
    foreign = zero if only_zero else _split(table, honest, 1)
    if foreign is None:
        return None
    content = None if only_zero else content_of(table[foreign], honest)
    words = f"{place_of(foreign, table, target, content)}, the rest is honest"
    inside = foreign.reshape(target.height, target.width)[1:-1, 1:-1]
    at_border = inside.size > 0 and not inside.any()
    return Finding("patched", words, None if only_zero else foreign, at_border=at_border)


def find_zeros(table: Wide, honest: Wide, target: Grid) -> Finding | None:
    """Look for cells that are exactly zero, unlike the honest ones."""
    zero = _lost(table, honest)
    return Finding("patched", place_of(zero, table, target)) if zero.any() else None


def _lost(table: Wide, honest: Wide) -> NDArray[np.bool_]:
    """Return the rows that are exactly zero: no interpolation gives them from other rows.

    They are found even where the source's own rows are small.
    """
    large = np.abs(honest).max(axis=1) > _ROUNDED_TO_ZERO * np.abs(table).max()
    lost: NDArray[np.bool_] = ~table.any(axis=1) & large
    if lost.any() and not lost.all():
        lost &= ~_rounded_away(table, honest)
    return lost


def _rounded_away(table: Wide, honest: Wide) -> NDArray[np.bool_]:
    """Return the rows that are zero because each channel was rounded to steps of its own."""
    steps = np.where(table == 0, np.inf, np.abs(table)).min(axis=0)
    counts = table / steps
    small: NDArray[np.bool_] = np.all(np.abs(honest) <= _FEW_STEPS * steps, axis=1)
    return small & bool(np.all(np.abs(counts - np.round(counts)) < _WHOLE))


def place_of(
    foreign: NDArray[np.bool_], table: Wide, target: Grid, content: str | None = None
) -> str:
    """Say which cells are foreign, and what they contain (all zero unless stated)."""
    where = np.flatnonzero(foreign)
    content = content or "all zero"
    count = f"{len(where)} of {len(table)} cells"
    if len(where) == 1:
        place = f"row {where[0] // target.width}, column {where[0] % target.width}"
        alone = content if content in ("all zero", _OTHER_CELLS) else "something else"
        return f"one cell of {len(table)} ({place}) is {alone}"
    if len(where) == where[-1] - where[0] + 1:
        which = f"cells {where[0]} to {where[-1]}"
        if where[-1] == len(table) - 1:
            which = f"the last {len(where)} cells"
        elif where[0] == 0:
            which = f"the first {len(where)} cells"
        return f"{which} of {len(table)} are {content}"
    grid = foreign.reshape(target.height, target.width)
    for axis, word in ((1, "row"), (0, "column")):
        whole = np.atleast_1d(grid.all(axis=axis))
        if whole.sum() * grid.shape[axis] == len(where):
            if whole.sum() == 1:
                return f"{word} {whole.argmax()} of the grid is {content}"
            listed = ", ".join(str(i) for i in np.flatnonzero(whole)[:6])
            more = " …" if whole.sum() > 6 else ""
            return f"{word}s {listed}{more} of the grid are {content}"
    return f"{count} are {content}"


def content_of(rows: Wide, honest: Wide) -> str:
    """Say what some cells contain, compared with the honest cells of all places."""
    if not rows.any():
        return "all zero"
    if np.ptp(rows, axis=0).max() == 0 and len(rows) > 1:
        return "all the same"
    some = rows[spread(len(rows), _SAMPLE)]
    apart = [np.sqrt(((honest - row) ** 2).sum(axis=1).min()) for row in some]
    if np.mean(np.array(apart) <= _SAME * np.sqrt((some**2).sum(axis=1))) > 0.5:
        return _OTHER_CELLS
    similar = np.einsum("nd,nd->n", unit(rows[1:]), unit(rows[:-1])) if len(rows) > 1 else [0.0]
    return "random numbers" if np.abs(np.mean(similar)) < _RANDOM else "something else"


def _content_of_channels(channels: Wide) -> str:
    """Say what some channels (channels × cells) contain."""
    if not channels.any():
        return "all zero"
    if np.ptp(channels, axis=1).max() <= _FLAT * np.abs(channels).max():
        return "the same in every cell"
    return "not the source's"


def _channels(table: Wide, honest: Wide) -> Finding | None:
    count = table.shape[1]
    if len(table) < 6 or count < 4:
        return None
    cells = spread(len(table), _SAMPLE)
    mine, theirs = unit(table[cells].T), unit(honest[cells].T)
    own = np.einsum("dn,dn->d", mine, theirs)
    empty = ~table.any(axis=0) & honest.any(axis=0)
    if empty.any() and not empty.all():
        return Finding("channels lost", f"{empty.sum()} of {count} channels are all zero")
    flipped = own < -_SURE
    if flipped.any() and (flipped | (own > _SURE)).mean() > 0.9:
        # A kernel that differs leaves a few channels unsure; they have a sign all the same.
        opposite = own < 0
        words = (
            "every channel has" if opposite.all() else f"{opposite.sum()} of {count} channels have"
        )
        return Finding("sign-flipped", f"{words} the opposite sign")
    foreign = _split(table, honest, 0)
    cosines = np.abs(products(mine.astype(np.float32), theirs.astype(np.float32)))
    found = cosines.argmax(axis=1)
    sure = cosines[np.arange(count), found] > _SURE
    # On a few cells another channel can be as similar by chance.
    moved = sure & (found != np.arange(count)) & (np.abs(own) < _DOUBTFUL)
    if sure.mean() > 0.8 and moved.mean() > 0.05:
        steps = (found - np.arange(count)) % count
        if np.array_equal(found[sure], (count - 1 - np.arange(count))[sure]):
            words = "the channels are in reverse order"
        elif len(set(steps[sure].tolist())) == 1:
            words = f"the channels are rolled by {int(-steps[sure][0]) % count}"
        else:
            words = f"{moved.sum()} of {count} channels are in another order"
        # On a few cells, channels of other honest results look exchanged, too.
        return Finding("channels permuted", words, moved, axis=0)
    if foreign is None:
        return None
    content = _content_of_channels(table[:, foreign].T)
    verb = "is" if foreign.sum() == 1 else "are"
    words = f"{foreign.sum()} of {count} channels {verb} {content}"
    return Finding("channels lost", words, foreign, axis=0)


def _order(table: Wide, honest: Wide, target: Grid) -> Finding | None:
    """Detect honest cells in a wrong order."""
    cells = spread(len(table), _SAMPLE)
    mean = honest.mean(axis=0)
    mine, theirs = unit(table[cells] - mean), unit(honest - mean)
    cosines = products(mine.astype(np.float32), theirs.astype(np.float32))
    found = cosines.argmax(axis=1)
    distance = np.sqrt(((table[cells] - honest[found]) ** 2).sum(axis=1))
    scale = np.sqrt((honest[found] ** 2).sum(axis=1))
    exact = distance <= _SAME * np.maximum(scale, 1e-30)
    # A symmetric table has equal cells, so another cell may be as near as the right one.
    in_place = _errors(table[cells], honest[cells], 1) <= _SAME
    moved = (found != cells) & ~in_place
    if exact.mean() < 0.9 or moved.mean() < 0.3:
        return None
    foreign = np.zeros(len(table), dtype=bool)
    foreign[cells[moved]] = True
    name, words = wrong_order(cells, found, target, float(moved.mean()))
    return Finding(name, words, foreign, near=_SAME)


def wrong_order(
    cells: NDArray[np.intp], found: NDArray[np.intp], target: Grid, moved: float
) -> tuple[str, str]:
    """Describe where cells were found: a name and words."""
    rows, columns = np.divmod(cells, target.width)
    count = target.cells
    steps = (found - cells) % count
    if (steps == np.bincount(steps).argmax()).mean() > 0.9:
        step = int(np.bincount(steps).argmax())
        step = step if step <= count // 2 else step - count
        words = f"every cell stands {abs(step)} too {'early' if step > 0 else 'late'} in the table"
        hint = "a prefix row too few" if step > 0 else "a prefix row too many"
        return "shifted", f"{words}: {hint}, or rolled"
    down = (found // target.width - rows) % target.height
    across = (found % target.width - columns) % target.width
    if (down == down[0]).all() and (across == across[0]).all():
        return "rolled", f"the grid is rolled by {down[0]} rows and {across[0]} columns"
    if np.array_equal(found, columns * target.height + rows):
        return "swapped", "cells run down the columns instead of along the rows"
    return "shuffled", f"{moved:.0%} of the cells are honest ones in the wrong places"


def _flat_axes(table: Wide, honest: Wide, target: Grid) -> Finding | None:
    """Look for an axis along which nothing varies, although honest results vary there."""
    grid, other = (rows.reshape(target.height, target.width, -1) for rows in (table, honest))
    scale, usual = (float(np.abs(each).max()) or 1.0 for each in (grid, other))
    for axis, words in ((0, "all rows of the grid are alike"), (1, "all its columns are alike")):
        flat = grid.shape[axis] > 1 and np.ptp(grid, axis=axis).max() < _FLAT * scale
        # A source of one row, or one that repeats its rows, gives rows that are alike.
        if flat and np.ptp(other, axis=axis).max() > _VARIES * usual:
            return Finding("flattened", f"{words}: one direction is lost")
    return None


def _mean(table: Wide, honest: Wide, source: Wide) -> Finding | None:
    mine, theirs = table.mean(axis=0), honest.mean(axis=0)
    rest, whole = table - mine - (honest - theirs), honest - theirs
    moved = float(np.sqrt(np.sum((mine - theirs) ** 2)))
    usual = float(np.sqrt(np.sum(theirs**2)))
    if np.sqrt(np.sum(rest**2)) > _SAME * np.sqrt(np.sum(whole**2)) or moved < 0.5 * usual:
        return None
    # A mean of almost nothing changes by a multiple of itself when values are rounded, and some
    # restore the source's.
    deviation = float(np.sqrt(np.sum(whole**2) / len(whole)))
    apart = ratio(moved, deviation, np.inf)
    if min(apart, ratio(float(np.sqrt(np.sum((mine - source) ** 2))), deviation, np.inf)) < _SAME:
        return None
    if np.sqrt(np.sum(mine**2)) < 0.05 * usual:
        return Finding("mean removed", "an honest resize, but without its mean vector")
    factor = float(mine @ theirs) / usual**2 if usual else 0.0
    if np.sqrt(np.sum((mine - factor * theirs) ** 2)) < _SAME * moved:
        words = f"an honest resize, but its mean vector is multiplied by {factor:.2g}"
        return Finding("mean changed", words)
    # Where the mean is almost zero, a little training moves it by more than its own length.
    if apart < MEAN_SHIFT[0]:
        return None
    return Finding("mean changed", f"an honest resize, but its mean vector moved by {moved:.2g}")


def find_values(table: Wide, honest: Wide) -> Finding | None:
    """Compare single values with those of the honest result that is nearest."""
    if len(table) < 2 or not np.ptp(table, axis=0).any():
        return None
    cells = spread(len(table), _SAMPLE)
    sample, fair = table[cells].reshape(-1), honest[cells].reshape(-1)
    if len(sample) < 4 * _FEW_VALUES:
        return None
    different = len(np.unique(sample))
    if different <= _FEW_VALUES:
        return Finding("quantised", f"there are only {different} different values")
    sizes = np.abs(fair)
    far = np.abs(sample - fair)
    wrapped = far > 0.5 * sizes.max()
    # What overflows an integer comes out at the other end: too low or too high by the whole range.
    if wrapped.mean() > _WRAPPED and (sample * fair)[wrapped].max() < 0:
        span = far[wrapped]
        if span.std() < _SAME * span.mean():
            return Finding(
                "wrapped", f"{wrapped.mean():.1%} of the values are off by {span.mean():.3g}"
            )
    # A kernel that overshoots makes values of a table without negative ones slightly negative.
    negative = float(sizes[fair < 0].sum())
    if sample.min() >= 0 and negative > _MATTERS * float(sizes.sum()):
        return Finding("absolute", "no value is negative: the signs are lost")
    most = np.abs(sample).max()
    at_most = np.abs(sample) >= most * (1 - 1e-6)
    # Sines have many values near their largest one; values that were cut off had been larger.
    if at_most.mean() > _MANY and median(sizes[at_most]) > _BEYOND * most:
        words = f"{at_most.mean():.0%} of the values are ±{most:.3g}, cut off there"
        return Finding("clipped", words)
    whole = table[cells]
    # Without cells and channels that are zero as a whole: they are described elsewhere.
    lines = ~np.any(whole, axis=1, keepdims=True) | ~np.any(whole, axis=0)
    zero = ((whole == 0) & ~lines).reshape(-1)
    # Eight bits round small values to zero, and no larger ones than the smallest that is left in
    # that channel; values that were dropped had been of any size.
    left = np.where(whole == 0, np.inf, np.abs(whole)).min(axis=0)
    zero &= (sizes.reshape(whole.shape) > left).reshape(-1)
    if zero.mean() > _MANY and median(sizes[zero]) > _USUAL * median(sizes):
        words = f"{zero.mean():.0%} of the values are exactly zero, all over the table"
        return Finding("dropped", words)
    return None
