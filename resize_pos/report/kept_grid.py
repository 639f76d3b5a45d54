"""The choice to keep the grid, in words: for the terminal and for the page of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.verify.kept_grid import KeptGrid

_EXACT = 1e-3  # relative error of the response


@dataclass(frozen=True, slots=True)
class Choice:
    """Another way to the same image size; without a command it is not possible."""

    heading: str
    words: tuple[str, ...]
    command: str = ""


def choice_of(kept: KeptGrid) -> Choice:
    """Say what the choice does, and where it was measured to be better, that it was."""
    heading = f"or keep {kept.grid} and resize the patch kernel"
    if kept.new_patch is None or kept.response_error is None:
        return Choice(heading, (f"not possible here; {kept.obstacle}",))
    exact = kept.response_error < _EXACT
    loss = "its response is kept" if exact else f"its response changes by {kept.response_error:.1%}"
    count = f"{kept.grid.cells:,} cells instead of {kept.instead_of.cells:,}"
    words: tuple[str, ...] = (
        f"{kept.patch} → {kept.new_patch} px, {loss}; {count}, and every position stays as it is",
    )
    # Only growing was measured; a smaller kernel sees less of each patch.
    if kept.spares_growth:
        words += ("often better without fine-tuning, where no finer detail is needed",)
    return Choice(heading, words, kept.command)
