"""Judge a table that no library makes: by another kernel, a mistake, training, or something else.

Nobody can list every kind of damage. So it is not enough that no mistake was found. All of a table
has to come from the source cells around each place, up to a little, or training has to explain the
rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.catalogue import Measured
from resize_pos.quality.measures.sampling import Wide, ratio, size
from resize_pos.quality.table_health import Health
from resize_pos.quality.verdict import in_place, is_like_an_honest_one
from resize_pos.verify.made_by.altered import find_altered
from resize_pos.verify.made_by.cells import is_interpolated
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.fitted import Fitted, KernelFit, fit_kernel, fit_nearby
from resize_pos.verify.made_by.methods import ConventionMatch
from resize_pos.verify.made_by.mistakes import diagnose, nearest_mistake
from resize_pos.verify.made_by.moved import nearest_honest
from resize_pos.verify.made_by.origin import (
    TableOrigin,
    allow_training,
    nothing_left,
    of_table,
    origin_in_doubt,
)
from resize_pos.verify.made_by.pair import Pair
from resize_pos.verify.made_by.restored import without_lengths
from resize_pos.verify.made_by.training import Movement, movement, unexplained

# Of the honest distance: so near may a mistake come to a table that was trained on.
_BY_CHANCE = 0.96
# How far cells are away from their places, relative to what rules of coordinates do: on few cells
# (hard training has 1.8), on more cells where hardly anything else was done to them, …
_AWAY, _MOVED_AWAY, _MOVED_ALONE = 2.0, 1.6, 0.04
# … and where the kernel makes a table that differs so many times more than honest results do.
_ODDLY_AWAY, _ODD = 1.0, 1.25


def explain_unmatched(
    pair: Pair,
    matches: tuple[ConventionMatch, ...],
    health: Health | None,
    measured: Measured,
    checks: tuple[Check, ...],
    stretchable: bool,
) -> tuple[tuple[Check, ...], Diagnosis | None]:
    """Say how a table was made that no known method makes, and judge it.

    `health` is the table's; None if the source's is of the same kind.
    """
    error = nearest_honest(pair.cells_before, pair.cells_after, pair.target)
    fit = _fitted_kernel(pair) if stretchable else None
    # On a few lines any matrices may look like a kernel's, so the result must look like one, too.
    likely = fit is not None and is_like_an_honest_one(measured)
    fitted = fit.kind if fit is not None and likely else Fitted.UNKNOWN
    # What an honest kernel explains was not moved by training, however far it is from the others.
    by_training = min(error, fit.left) if fit is not None and fitted is Fitted.HONEST else error
    checks = allow_training(checks, by_training, measured)
    level = worst(of_table(checks))
    lost = nothing_left(health, checks, measured)
    found = lost
    if lost is None or not lost.certain:
        lost_too = lost is not None
        found = find_mistake(pair, level, trained=stretchable, fitted=fitted, lost=lost_too)
    moved = doubt = None
    if fitted in (Fitted.HONEST, Fitted.BLURRED) and found is None:
        checks = proven(checks)
    elif lost is not None:
        found = found or lost
    elif fit is not None and found is None:
        rest = fit_nearby(pair.many_grid, pair.many_after, pair.target)
        found = _find_operation(pair, rest)
        left = unexplained(pair.many_grid, pair.many_after, rest, pair.target)
        envelope = measured.values.get("unlikeness_honest", 0.0)
        little = left is None or left.is_little(envelope) or left.is_own
        if found is None and not little and in_place(measured):
            moved = _find_training(pair, error)
        if moved is not None:
            checks = allow_training(proven(checks), error, measured, certain=True)
        elif found is None and left is not None:
            found, doubt = _find_foreign(left, envelope), _find_doubt(left, fit, measured)
    made = TableOrigin(found, fitted, moved, doubt)
    origin = origin_in_doubt(matches, made, checks, measured, error)
    return (*origin, *checks), found


def recognised(
    method: str, found: Diagnosis | None, checks: tuple[Check, ...]
) -> tuple[Check, ...]:
    """Say what made a table; `found`: the channels that it did not make."""
    if found is None:
        return (Check("origin", Level.OK, f"made by {method}"), *proven(checks))
    return (Check("origin", Level.FAIL, f"made by {method}, but {found.detail}"), *checks)


def proven(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Accept places and norms of a table that was recomputed: no statistic contradicts that."""
    settled = ("place", "smoothness", "norms")
    return tuple(
        replace(check, level=Level.OK) if check.name in settled else check for check in checks
    )


def find_mistake(
    pair: Pair,
    level: Level,
    *,
    trained: bool = False,
    fitted: Fitted = Fitted.UNKNOWN,
    lost: bool = False,
) -> Diagnosis | None:
    """Find the mistake that made a table; in one that looks honest, only a certain one counts."""
    found = diagnose(pair, trained=trained, fitted=fitted, lost=lost)
    return None if found is not None and not found.certain and level is Level.OK else found


def find_mistake_of_offsets(pair: Pair, level: Level) -> Diagnosis | None:
    """Find the mistake, or the operation, that made a relative table."""
    found = find_mistake(pair, level)
    if found is not None or pair.copies > 1:
        return found
    return _find_operation(pair, fit_nearby(pair.many_grid, pair.many_after, pair.target))


def _fitted_kernel(pair: Pair) -> KernelFit | None:
    """Find the kernel that makes the table, whether it is listed or not; norms may be restored."""
    if pair.copies > 1:
        return None
    found = fit_kernel(pair.many_grid, pair.many_after, pair.target)
    if found.kind is Fitted.HONEST:
        return found
    for source, rows in without_lengths(pair.many_grid, pair.many_after, pair.target):
        undone = fit_kernel(source, rows, pair.target)
        if undone.kind is Fitted.HONEST:
            return undone
    if is_interpolated(pair.many_grid, pair.many_after, pair.target):
        return replace(found, kind=Fitted.HONEST)
    return found


def _find_operation(pair: Pair, rest: Wide) -> Diagnosis | None:
    """Say which operation was applied to an honest resize; `rest` is what no kernel explains."""
    made = pair.many_after - rest
    left = ratio(size(rest), size(made - made.mean(axis=0)), np.inf)
    found = find_altered(pair.many_grid, pair.many_after, left, pair.target)
    return None if found is None else Diagnosis(found.name, found.detail, 0.0, True)


def _find_training(pair: Pair, error: float) -> Movement | None:
    """Say how far training moved an honest resize; None if something else explains the table.

    `error`: the distance to the nearest honest result.
    """
    found = movement(pair.many_grid, pair.many_after, pair.target)
    if found is None or not found.is_training:
        return None
    mistake = nearest_mistake(pair)
    return None if mistake is not None and mistake.error < _BY_CHANCE * error else found


def _find_foreign(rest: Movement, envelope: float) -> Diagnosis | None:
    """Say how much of a table is not of its source; None where that may be training or a kernel."""
    if rest.is_small or not rest.is_much(envelope) or rest.is_light_training:
        return None
    if rest.is_noise:
        words = f"random values were added, {rest.moved:.1f} times as large as positions differ"
        return Diagnosis("noisy", words, 0.0, True)
    words = f"{rest.moved:.0%} of how much positions differ comes from no cell around its place"
    return Diagnosis("mixed with something else", words, 0.0, True)


def _find_doubt(rest: Movement, fit: KernelFit, measured: Measured) -> str | None:
    """Say why a table is no plain resize; None where nothing speaks against it."""
    envelope = measured.values.get("unlikeness_honest", 0.0)
    unlike = measured.values.get("unlikeness", 0.0)
    if not rest.is_little(envelope) and not rest.is_light_training:
        part = f"{rest.moved:.0%} of how much its positions differ"
        return f"{part} comes from no cell of the source around its place"
    if rest.is_weak(envelope):
        return f"Only {max(rest.left, 0.0):.0%} of how much positions differ is left"
    if rest.is_vector:
        return "One vector was added to some channels of all cells"
    # What the fitted kernel makes of the source beyond what honest kernels do.
    odd = float(np.sqrt(max(unlike**2 - rest.moved**2, 0.0)))
    oddly = odd > _ODD * envelope and fit.away >= _ODDLY_AWAY and not rest.is_light_training
    away = rest.is_small and fit.away >= _AWAY
    moved = fit.elsewhere and fit.away >= _MOVED_AWAY and rest.moved <= _MOVED_ALONE
    found = away or oddly or (moved and unlike > envelope)
    return "Its cells come from other places than their own" if found else None
