"""Every measure by name, with its meaning. Needs no numpy, so that options can be parsed fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from resize_pos.core.conventions import PEERS, Resampling
from resize_pos.core.errors import UsageError
from resize_pos.core.fast_dataclass import dataclass

MEASURES: Mapping[str, str] = {
    "norm_ratio": "mean vector norm after ÷ before",
    "norm_change": "|norm_ratio − 1|",
    "norm_ratio_p1": "1st percentile of the new norms ÷ the source's norms at the same place",
    "norm_ratio_p99": "99th percentile of the same",
    "norm_ratio_interior": "its mean over the cells that touch no border",
    "norm_ratio_edge": "its mean over the outermost ring of cells",
    "norm_ratio_corner": "its mean over the corner cells",
    "prefix_to_grid_before": "mean norm of the prefix rows ÷ mean norm of the grid, source",
    "prefix_to_grid_after": "the same after the transfer",
    "prefix_change": "relative change of the prefix and suffix rows; 0 when they are bit-equal",
    "channel_mean_drift": "shift of the channels' means, in units of the source's deviation",
    "channel_std_ratio": "mean deviation of the channels after ÷ before",
    "channel_std_drift": "mean |deviation after ÷ before − 1| over the channels",
    "round_trip": "relative error after going back to the source grid by the same method",
    "round_trip_best": "relative error after the best linear way back: what is lost for good",
    "overshoot": "share of new values outside the source's range in their channel",
    "overshoot_worst": "largest such excess, in units of that channel's range",
    "clamped_rows": "rows of the new grid that lie outside the source's outermost centres",
    "clamped_columns": "columns of the new grid that do",
    "rounding": "relative error of rounding the exact result to the stored dtype",
    "rounding_share": "rounding ÷ median distance to the other libraries' results",
    "neighbour_cosine_source": "mean cosine of neighbours, source, at the coarser grid's step",
    "neighbour_cosine": "the same after the transfer, at the same physical distance",
    "neighbour_deficit": "how much lower that cosine has become",
    "fewest_cells": "cells of the smaller of both grids",
    "unlikeness": "√(1 − cos²) of the new table and the honest result that it resembles most",
    "unlikeness_honest": "the largest of that among the honest results themselves",
    "misplaced": "mean distance, as a part of the image, to the honest cell that fits better",
    "misplaced_honest": "the largest of that among the honest results themselves",
    "foreign_cells": "share of new cells unlike the honest one there (cosine below 0.5)",
    "foreign_cells_honest": "the largest of that among the honest results themselves",
    "foreign_channels": "share of channels unlike the honest one (correlation below 0.5)",
    "foreign_channels_honest": "the largest of that among the honest results themselves",
    "mean_shift": "distance of the mean vector from the honest one's, in deviations",
    "mean_shift_honest": "the largest of that among the honest results themselves",
    "gain": "factor by which the nearest honest result has to be multiplied",
    "norm_sampled": "norm_ratio over the sample of cells that is compared with honest results",
    "norm_honest_low": "the lowest norm_ratio among the honest results",
    "norm_honest_high": "the highest",
    "displacement": "mean distance of the most similar source cell from the right one, ÷ max(h, w)",
    "best_cosine": "median cosine of a new cell with its most similar source cell",
    "lost_cells": "share of new cells with no similar source cell (best cosine below 0.3)",
    "affine_scale_h": "slope of retrieved against expected rows; 1 is right",
    "affine_scale_w": "slope of retrieved against expected columns; 1 is right",
    "affine_shift_h": "offset of that fit at the centre, in cells of the coarser grid; 0 is right",
    "affine_shift_w": "the same for columns",
    "affine_cross": "largest slope of one axis against the other; 0 is right, 1 is a transpose",
    "affine_residual": "median distance of the retrieved cells from that fit, in source cells",
    "structure": "correlation of the Gram matrices at the same places of the image",
    "imaging": "share of the new table's variance above the source's Nyquist frequency",
    "aliasing": "share of the new table's variance folded from above its own Nyquist frequency",
    "beyond_target": "share of the source's variance above the target's Nyquist frequency",
    "window_period": "side in cells of the windows that repeat in the source; 0 when none could",
    "window_prominence": "share of the fine structure that repeats in them, above chance",
    "attention_drift": "block 0, positions alone: mean total variation of the attention maps",
    "attention_entropy_before": "mean entropy of those maps ÷ that of uniform attention, source",
    "attention_entropy_after": "the same after the transfer",
    "zero_offset_change": "relative: change of the row for offset zero",
    "zero_offset_honest": "relative: the largest zero_offset_change among the honest results",
    "asymmetry_before": "relative: difference between offsets Δ and −Δ, source",
    "asymmetry_after": "the same after the transfer",
    "asymmetry_honest": "relative: the largest growth of asymmetry among the honest results",
    "decay_drift": "relative: change of the mean over distance, distances as parts of the window",
    "decay_drift_cells": "the same with distances counted in cells",
    "mixing_loss": "layer over patches: relative error of W′·R (written: R⁺·W′) against W",
    "mixing_scale": "layer over patches: the smaller of new ÷ old rows and new ÷ old columns",
    "window_share": "tiled: share of the source's variance that repeats with the window",
    "window_kept": "tiled: cosine of the mean window after and before, each without its mean",
    "window_kept_plain": "the same if the table had been interpolated as a whole",
    "length_norm_ratio": "text: mean norm of the positions after ÷ before, where they interpolate",
    "interpolation_difference": "sin-cos: relative distance of interpolation from the new table",
}


_PEERS = tuple(peer.name for peer in PEERS)


@dataclass(frozen=True, slots=True)
class Peer:
    """What another library's convention would have made of the same table."""

    convention: str
    resampling: Resampling
    distance: float  # relative L2 distance of its result from ours
    norm_ratio: float  # of its result


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything measured on one table."""

    values: Mapping[str, float] = field(default_factory=dict)
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound that the user sets on a measure (`--max NAME=LIMIT`)."""

    measure: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read `round_trip=0.2`; `distance_hf=0.02` bounds the distance to a library."""
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not equals or value != value:
            raise UsageError(
                f"--max {text!r} is not MEASURE=LIMIT.", hint="for example --max norm_change=0.1"
            )
        if name not in MEASURES and name.removeprefix("distance_") not in _PEERS:
            raise UsageError(
                f"--max {text!r}: no measure is called {name!r}.", hint=_measures_like(name)
            )
        return cls(name, value)

    def value(self, measured: Measured) -> float | None:
        """Return the value of its measure; None if it was not measured."""
        if self.measure in measured.values:
            return measured.values[self.measure]
        name = self.measure.removeprefix("distance_")
        return next((p.distance for p in measured.peers if p.convention == name), None)


def _measures_like(name: str) -> str:
    """Suggest measures with a similar name, or list all of them."""
    import difflib  # only a mistyped name needs it

    near = [each for each in MEASURES if name and name in each]
    near = near or difflib.get_close_matches(name, MEASURES, n=5)
    if near:
        return (
            f"did you mean {', '.join(near[:5])}? `resize-pos FILE --to SIZE -v` prints them all."
        )
    return f"the measures are {', '.join(MEASURES)}, and distance_NAME for {', '.join(_PEERS)}."
