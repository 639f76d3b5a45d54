"""Explain a table that matches no convention: a mistake, training, or another honest method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.catalogue import Measured
from resize_pos.quality.measures.sampling import ratio
from resize_pos.quality.table_health import KIND_WORDS, Health, HealthKind
from resize_pos.quality.verdict import FEWEST_CELLS, NEIGHBOUR_DEFICIT_OK, UNLIKENESS
from resize_pos.verify.made_by.diagnosis import Diagnosis
from resize_pos.verify.made_by.fitted import Fitted
from resize_pos.verify.made_by.methods import ConventionMatch
from resize_pos.verify.made_by.offsets import Origin
from resize_pos.verify.made_by.training import Movement

TRAINED = 0.5  # up to this distance to the nearest honest result, training explains it,
NEARLY = 0.01  # up to this distance to a convention, it is that one, and rounded or trained
SMOOTH = 0.1  # if the similarity of neighbours fell by no more than this
FOREIGN = 0.9  # unlikeness and share of foreign cells beyond which nothing of the source is left
NOISY = 0.2  # how far noise may misplace cells,
LOUD = 1.3  # unless channels vary so much more than the source's that it must be noise
SMOOTHED = (-0.1, 0.8)  # neighbours that much more similar, channels that much less varied
# How much more than the grid prefix rows may change by training (AdamW: 6 times, SGD: 20 times), …
TRAINED_PREFIX = 24.0
# … but of their own length only so much: rows that are set to zero change by 1. SGD may move a
# class row by 2.7 times its length, so beyond the limit it is a warning.
PREFIX_LOST = 0.7
SHORTER = 0.5  # of their length: what is left of such rows by training
_AFTER = ("after", "before")
# What a table without anything of its source looks like.
_INSTEAD = {
    HealthKind.ZERO: KIND_WORDS[HealthKind.ZERO],
    HealthKind.CONSTANT: KIND_WORDS[HealthKind.CONSTANT],
}
# An honest resize of a rough table, or of one that is nearly sin-cos, may look like this, too; then
# its structure checks pass.
_PERHAPS_INSTEAD = {
    HealthKind.SINCOS: "replaced: a fixed sin-cos table, nothing of the source is left",
    HealthKind.UNTRAINED: "re-initialised: random numbers, nothing of the source is left",
    HealthKind.SHUFFLED: KIND_WORDS[HealthKind.SHUFFLED],
}
# Checks that say nothing about how a table was made.
_OF_SOURCE = frozenset({"window", "source", "content"})


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """What is known of how a table was made that matches no convention."""

    found: Diagnosis | None
    fitted: Fitted  # the kernel that makes it of the source
    moved: Movement | None  # how far training moved it
    doubt: str | None  # what speaks against a plain resize


def allow_training(
    checks: tuple[Check, ...], error: float, measured: Measured, *, certain: bool = False
) -> tuple[Check, ...]:
    """Accept prefix rows that changed about as much as the grid did: both were trained on.

    `error` is the distance of the grid to the nearest honest result. `certain`: it is known to be
    training.
    """
    change = measured.values.get("prefix_change", 0.0)
    others = (check for check in of_table(checks) if check.name != "prefix")
    trained = (certain or error < TRAINED) and worst(others) is Level.OK
    # A step of training moves every value by about the same amount, so short rows change more.
    length = min(1.0, measured.values.get("prefix_to_grid_before", 1.0)) or 1.0
    if not trained or change > TRAINED_PREFIX * error / length:
        return checks
    shorter = ratio(*(measured.values.get(f"prefix_to_grid_{when}", 1.0) for when in _AFTER))
    if change > PREFIX_LOST and shorter < SHORTER:  # rows that are gone, or nearly so
        return checks
    words, level = f"prefix or suffix rows changed by {change:.1%}, as training does", Level.OK
    if change > PREFIX_LOST:
        words = f"prefix or suffix rows changed by {change:.1%}: hard training, or damage"
        level = Level.WARN
    return tuple(
        Check("prefix", level, words) if c.name == "prefix" and c.level is not Level.OK else c
        for c in checks
    )


def offset_checks(
    origin: Origin, found: Diagnosis | None, checks: tuple[Check, ...]
) -> tuple[Check, ...]:
    """Join the checks of a relative table with how it was made."""
    if found is not None:
        verb = "It is" if found.certain else "It looks"
        words = f"{origin.near}. {verb} {found.name}: {found.detail}"
        return (Check("origin", Level.FAIL, words), *checks)
    settled: set[str] = set()
    if origin.exact:  # no statistic contradicts a table that was recomputed
        settled = {"zero offset", "symmetry", "norms"}
    elif origin.check.level is Level.OK:  # near an honest result, offset zero included
        settled = {"zero offset"}
    kept = (replace(c, level=Level.OK) if c.name in settled else c for c in checks)
    return (origin.check, *kept)


def origin_in_doubt(
    matches: tuple[ConventionMatch, ...],
    made: TableOrigin,
    checks: tuple[Check, ...],
    measured: Measured,
    error: float,
) -> Iterator[Check]:
    """Explain a table that matches no convention; `error` as above."""
    checks, found, moved = of_table(checks), made.found, made.moved
    distance = f"{matches[0]}, {matches[0].error:.1%} away"
    near, beside = f"matches no convention; the nearest is {distance}", f"nearest: {distance}"
    if found is not None:
        verb = "it is" if found.certain else "it looks"
        yield Check(
            "origin", Level.FAIL, f"{near}. {verb.capitalize()} {found.name}: {found.detail}"
        )
    elif made.fitted is Fitted.HONEST and matches[0].error > NEARLY:
        by = "made by another kernel: every cell is a mean of the source around its place"
        yield Check("origin", Level.OK, f"{by} ({beside})")
    elif moved is not None:
        how = f"an honest resize that training moved {moved.moved:.1f} times as far as its"
        yield Check("origin", worst(checks), f"{how} positions differ ({beside})")
    elif made.fitted is Fitted.BLURRED:
        how = "It was blurred, or resized several times: its cells are means over too many others"
        yield Check("origin", Level.WARN, f"{near}. {how}")
    elif made.fitted is Fitted.BESIDE:
        how = "Its cells were read a little beside their places: it is too wide or too narrow"
        yield Check("origin", Level.WARN, f"{near}. {how}")
    elif made.doubt is not None and worst(checks) is Level.OK:
        yield Check("origin", Level.WARN, f"{near}. {made.doubt}: hard training, or damage")
    elif worst(checks) is Level.OK and not _is_tiny(measured):
        trained = error < TRAINED and measured.values.get("neighbour_deficit", 0.0) <= SMOOTH
        first = "an honest resize followed by training, or " if trained else ""
        yield Check("origin", Level.OK, f"{first}made by another honest method ({beside})")
    else:
        # No library's convention, but perhaps an honest method: the structure checks decide.
        yield Check("origin", worst(checks), f"{near}{_guess(measured)}")


def nothing_left(
    health: Health | None, checks: tuple[Check, ...], measured: Measured
) -> Diagnosis | None:
    """Say what stands in the place of the source if nothing of it is left: zeros, random numbers.

    It is certain unless a mistake makes a learned table look like that.
    """
    if health is None:
        return None
    alike = measured.values.get("unlikeness", 1.0) <= FOREIGN
    if health.kind is HealthKind.SINCOS and alike:  # cells of the same length are not sines yet
        return None
    words = _INSTEAD.get(health.kind)
    if words is None and worst(of_table(checks)) is not Level.OK:
        words = _PERHAPS_INSTEAD.get(health.kind)
    if words is None:
        return None
    name, _, detail = words.partition(": ")
    return Diagnosis(name, detail, 0.0, certain=health.kind in _INSTEAD)


def of_table(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Return the checks of the table itself, without those that are about its source."""
    return tuple(check for check in checks if check.name not in _OF_SOURCE)


def _is_tiny(measured: Measured) -> bool:
    return measured.values.get("fewest_cells", FEWEST_CELLS) < FEWEST_CELLS


def _guess(measured: Measured) -> str:
    """Return a guess of how the table was made, in words."""
    values = measured.values
    if _is_tiny(measured):
        return ". There are too few cells to tell more"
    deficit = values.get("neighbour_deficit", 0.0)
    if min(values["unlikeness"], values["foreign_cells"]) > FOREIGN:
        return ". Nothing of the source is left: it is another checkpoint's table"
    spread = values.get("channel_std_ratio", 1.0)
    if deficit < SMOOTHED[0] and spread < SMOOTHED[1]:
        return ". It is smoother than an honest resize: its cells were blurred"
    if deficit > NEIGHBOUR_DEFICIT_OK or values["unlikeness"] > UNLIKENESS[0]:
        noisy = values["misplaced"] <= NOISY or spread > LOUD
        return ". Noise was added, or it was trained on" if noisy else ""
    return ""
