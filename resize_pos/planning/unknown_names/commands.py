"""What the searches for tables under unknown names share: the family, and the commands."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar, cast

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role
from resize_pos.families.tables import PositionTable, Unsettled
from resize_pos.planning.unknown_names.candidates import token_rows

Found = TypeVar("Found")

_WORDS = lazy_regex(r"(?:word|tok(?:en)?|vocab|char)s?(?:_?emb\w*)?[./]|\bwte\b|embed_tokens")
MOST_CELLS = 20_000  # some more than 128×128; a table with more rows is a vocabulary
FEWEST_WORDS = 4096  # 64×64 cells; grids with more of them are usually squares
_MOST_TOKENS = 8  # rows beside a grid
_LOOKUP = lazy_regex(r"emb\w*\.(?:\w+\.)?weight$")
_NUMBER = lazy_regex(r"\d+")
NAME = "by-value"
_ANY = r"\d+$"
UNKNOWN_NAME = "no family knows this name"
FAMILY = Family(
    name=NAME,
    title="no family knows its name; found by its shape and values",
    role=Role.ABSOLUTE,
    key=".*",
    axes=(),
    source="planning/unknown_names/by_value.py",
)
LEFT = Family(
    name="left",
    title="given by --leave",
    role=Role.INERT,
    key=".*",
    axes=(),
    why="--leave says that it does not depend on the resolution",
    source="the command line",
)


class Strength(IntEnum):
    """How much speaks for a candidate that the user must decide about."""

    STRONG = 2  # stops every run
    WEAK = 1  # stops a run if no other table of an image is found, else it is listed
    NEUTRAL = 0  # the same, if no other table with a grid is found; else it is not mentioned


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A candidate that the user must decide about."""

    entry: Unsettled
    strength: Strength = Strength.WEAK


def name_regex(name: str, tensors: Iterable[str], *, numbered: bool = False) -> str:
    """Return an expression for a name, and for all names that differ from it in numbers only.

    `numbered`: the number at its end says what it is: pos.0 and pos.1 are rows and columns.
    """
    if numbered:
        return f"{name_regex(name, tensors)[: -len(_ANY)]}{name[-1]}$"
    several = _names_alike(tensors)[_NUMBER.sub("0", name)] > 1
    inner = _NUMBER.sub("0", re.escape(name)).replace("0", r"\d+") if several else re.escape(name)
    return f"^{inner}$"


def _names_of_one_layout(name: str, tensors: Iterable[str], one_shape: bool) -> str:
    """Return an expression for a name and those like it with the same axes of length 1.

    Empty if all names like it have them. `one_shape`: with the same shape.
    """
    if not isinstance(tensors, Mapping):
        return ""
    place = _NUMBER.sub("0", name), _kind(tensors[name], one_shape)
    same = _asked_last(tensors, one_shape, lambda: _by_layout(tensors, one_shape))[place]
    alike = _names_alike(tensors)[place[0]]
    return "|".join(f"^{re.escape(n)}$" for n in same) if len(same) < alike else ""


def _by_layout(
    tensors: Mapping[str, TensorInfo], one_shape: bool
) -> dict[tuple[str, tuple[int, ...]], list[str]]:
    found: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for name, info in tensors.items():
        found.setdefault((_NUMBER.sub("0", name), _kind(info, one_shape)), []).append(name)
    return found


def _kind(tensor: TensorInfo, one_shape: bool) -> tuple[int, ...]:
    return tensor.shape if one_shape else tuple(min(length, 2) for length in tensor.shape)


def _names_alike(tensors: Iterable[str]) -> Counter[str]:
    """Count the names that differ in numbers only."""
    return _asked_last(tensors, "alike", lambda: Counter(_NUMBER.sub("0", n) for n in tensors))


def _asked_last(tensors: Iterable[str], key: object, find: Callable[[], Found]) -> Found:
    """Compute a value once for a file, as each of its tables may ask."""
    if not _last or _last[0][0] is not tensors:
        _last[:] = [(tensors, {})]
    found = _last[0][1]
    if key not in found:
        found[key] = find()
    return cast("Found", found[key])


_last: list[tuple[Iterable[str], dict[object, object]]] = []  # the file that was asked about last


def text_layout(
    tensor: TensorInfo, layout: Layout | None = None, tensors: Iterable[TensorInfo] = ()
) -> Layout | None:
    """Return how a table of words or frames is laid out; None if its shape is not that of one.

    If tokens of the model may own rows, these are named, too, so that the user is asked for them.
    """
    if layout is not None and "(p h w s)" not in layout.pattern:
        return None
    flat = {2: "l d", 3: "1 l d"}.get(len(tensor.shape)) if layout is None else layout.pattern
    if flat is None:
        return None  # a number without axes, say
    before = token_rows(tensor.name.rpartition(".")[0], tensor.shape[-1], tensors)[0]
    line = "(p l)" if len(before) > 1 else "l"
    found = Layout.parse(flat.replace("(p h w s)", "l").replace("l", line))
    return found if found.mismatch(tensor.shape) is None else None


def reads_sequences(tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether a model reads words or sound: it has a vocabulary or 1-D kernels, and no others."""
    kernels = (info for info in tensors.values() if len(info.shape) > 3)
    if any(min(info.shape[2:]) > 1 and info.shape[0] > 1 for info in kernels):
        return False
    if any("patch" in name for name in tensors):
        return False
    return any(
        _is_vocabulary(info, tensors) or info.shape[0] > MOST_CELLS
        if len(info.shape) == 2
        else len(info.shape) == 3 and info.name.endswith("weight") and info.shape[2] > 1
        for info in tensors.values()
    )


def has_words(tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether a model has a vocabulary."""
    return any(len(info.shape) == 2 and _is_vocabulary(info, tensors) for info in tensors.values())


def _is_vocabulary(info: TensorInfo, tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether a name says: one row per word. A layer that makes tokens of pixels has a bias.

    So does a lookup with more rows than most grids have cells, if they are no square.
    """
    if f"{info.name.removesuffix('weight')}bias" in tensors:
        return False
    large = info.shape[0] > FEWEST_WORDS and not is_near_square(info.shape[0])
    return _WORDS.search(info.name) is not None or (
        large and _LOOKUP.search(info.name) is not None and info.shape[1] < info.shape[0]
    )


def is_near_square(rows: int) -> bool:
    """Whether rows are a square and a few tokens."""
    return rows - math.isqrt(rows) ** 2 <= _MOST_TOKENS


def command(
    tensor: TensorInfo,
    layout: Layout | None,
    tensors: Iterable[str],
    *,
    numbered: bool = False,
    one_shape: bool = False,
) -> str:
    """Return the flags that name a table, without the geometry."""
    axes = "" if layout is None else f" --axes '{layout}'"
    regex = "" if numbered else _names_of_one_layout(tensor.name, tensors, one_shape)
    regex = regex or name_regex(tensor.name, tensors, numbered=numbered)
    return f"--pattern '{regex}'{axes}"


def either(flags: str, tensor: TensorInfo, tensors: Iterable[str]) -> str:
    """Return the hint: resize this tensor, or leave it."""
    leave = f"--leave '{name_regex(tensor.name, tensors)}'"
    return f"pass {flags} to resize it, or {leave} if it does not depend on the resolution."


_GRID_HINT = lazy_regex(
    r"pass (--pattern '[^']*' --axes '[^']*') --from(?:-grid \d+x\d+| SIZE) to resize it, "
    r"or --leave '([^']*)'"
)


def with_one_command(entries: Sequence[Unsettled]) -> list[Unsettled]:
    """Let the hints of several tables, each with a grid of its own, name them all at once.

    `--from-grid` is one grid, so what one of them needs would contradict the next.
    """
    hints = [_GRID_HINT.match(entry.error.hint or "") for entry in entries]
    flags = dict.fromkeys(hint[1] for hint in hints if hint is not None)
    grids = any("--from-grid" in hint[0] for hint in hints if hint is not None)
    names = [e.tensor.name for e, hint in zip(entries, hints, strict=True) if hint is not None]
    towers = {name.partition(".")[0] for name in names if "." in name}
    if len(flags) < 2 or not (grids or len(towers) > 1):
        return list(entries)
    leave = "|".join(dict.fromkeys(hint[2] for hint in hints if hint is not None))
    words = (
        f"pass {' '.join(flags)} --from SIZE to resize them, or --leave '{leave}' if they do not "
        "depend on the resolution."
    )
    return [
        entry
        if hint is None
        else Unsettled(entry.tensor, entry.family, GeometryError(entry.error.message, hint=words))
        for entry, hint in zip(entries, hints, strict=True)
    ]


def from_flag(request: Request) -> str:
    """Return the flag for the size that only the user knows, unless it was given."""
    told = request.from_size is not None or request.from_grid is not None
    return "" if told else " --from SIZE"


def is_by_value(table: PositionTable) -> bool:
    """Whether a table was found by its values, and nobody has confirmed it."""
    return table.family.name == NAME and "--yes-by-value" not in table.evidence
