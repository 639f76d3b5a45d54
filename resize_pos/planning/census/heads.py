"""Layers that put out one number for each cell or pixel of the image: they fit one size only.

Nothing reads what such a layer puts out. A count may also be a number of classes or the width of
another model, so a classifier or a round number is only a reason to warn. Reads shapes only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Step
from resize_pos.planning.census.echoes import FEWEST_CELLS, FINER, Suspect

# How most libraries call the layer that puts out the classes. 100 and 400 of them are usual.
_CLASSIFIER = lazy_regex(
    r"(?:.*\.)?(?:heads?|fc|linear|\w*classifier|\w*logits)(?:\.(?:head|fc|l))?"
)
_DIGITS = lazy_regex(r"\d+")
# What a layer with a round number of outputs must be called to be named in a warning.
_MAP = lazy_regex(
    r"head|decod|pred|map|mask|heat|depth|dense|seg|pixel|recon|out(?:put)?s?$|flow|salien", re.I
)
# What leaves no doubt, even if the number is round: `heat` with one output per cell.
_SURE_MAP = lazy_regex(r"\w*heat(?:_?maps?)?|salien\w*|\w*_map|occupancy|(?:per_)?cells?")
_NO_MAP = lazy_regex(r"proj|class|cls|logit|token|vocab|proto|last_layer|lm_|text|word", re.I)


def heads_over_cells(
    others: Sequence[TensorInfo], changed: Sequence[Step], every: Mapping[str, TensorInfo]
) -> Iterator[tuple[Suspect, bool]]:
    """Find such layers; with each, whether there is no other reason for its number of outputs."""
    counts = dict(_counts(changed))
    layers = [
        info
        for info in others
        if len(info.shape) == 2
        and info.shape[0] in counts
        and every.get(_bias(info.name)) is not None
    ]
    if not layers:
        return
    alike = Counter(_DIGITS.sub("0", info.name) for info in layers)
    norms = {
        info.shape[0]
        for name, info in every.items()
        if len(info.shape) == 1 and name.endswith("weight")
    }
    tables = {step.name for step in changed}
    readers: dict[int, set[str]] = {}
    for info in every.values():
        if len(info.shape) > 1 and info.shape[1] in counts and info.name not in tables:
            readers.setdefault(info.shape[1], set()).add(_outer(info.name))
    for info in layers:
        count = info.shape[0]
        inside = _outer(info.name) in readers.get(count, ())  # the next layer reads it
        if inside or count in norms or alike[_DIGITS.sub("0", info.name)] > 1:
            continue
        # Queries, keys and values of one layer are two or three times as many as a width.
        multiple = any(count == times * norm for norm in norms for times in (2, 3, 4))
        round_number = count & (count - 1) == 0 or count in readers or multiple
        usual = round_number or _CLASSIFIER.fullmatch(_module(info.name)) is not None
        named = _SURE_MAP.fullmatch(_module(info.name).rpartition(".")[2]) is not None
        map_name = _MAP.search(_module(info.name)) and not _NO_MAP.search(info.name)
        if named or not usual or map_name:
            yield Suspect(info, f"has {count} outputs, {counts[count]}"), named or not usual


def _counts(changed: Sequence[Step]) -> Iterator[tuple[int, str]]:
    """List the numbers of cells and pixels of the images that change."""
    for step in changed:
        table, grid = step.table, step.table.grid
        if table.frames > 1 or not {"h", "w"} <= table.layout.axes or grid.cells < FEWEST_CELLS:
            continue
        if table.patch is not None:
            height, width = grid.height * table.patch.height, grid.width * table.patch.width
            for pixels in FINER:
                if height % pixels == 0 == width % pixels and height // pixels > grid.height:
                    cells = f"{height // pixels}×{width // pixels}"
                    words = f"as many as {cells} cells of the image of {table.name}"
                    yield (height // pixels) * (width // pixels), words
        yield grid.cells, f"as many as {table.name} has cells"


def _bias(name: str) -> str:
    return f"{name.removesuffix('weight')}bias"


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _outer(name: str) -> str:
    """Return the module that holds a layer and the next one."""
    return re.split(r"\.(?=[^.]*$)", _module(name))[0] if "." in _module(name) else ""
