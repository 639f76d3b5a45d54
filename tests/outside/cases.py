"""Recorded headers → checkpoint files with learned-looking tables, and what the tool makes of them.

A case ends `right` (every shape is the one that the library's own model has at the new size, and
every other byte is untouched), `hint` (refused, and the printed flags lead there when pasted),
`refused` (without a way on) or `wrong`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.errors import ResizePosError
from resize_pos.core.options import OPTIONS, Kind, Option
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Action
from resize_pos.report.report import Report
from resize_pos.run.job import Job, run

HERE = Path(__file__).parent
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}
_NUMPY = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
_SIDES = (1, 2, 3, 4, 7, 8, 12, 14, 16, 32, 64)
_COPIES = (1, 2, 3, 4, 8)  # grids in one table: frames
_WAVES = 5
_NOISE = 0.15
_LEAST_LIKENESS = 0.9  # correlation with the true field; a transposed grid has about 0.3
_MOST_HINTS = 4  # refusals that are followed, one after the other

Shape = tuple[int, ...]
Size = tuple[int, int]


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: Shape

    @classmethod
    def parse(cls, words: str) -> Tensor:
        dtype, *lengths = words.split()
        return cls(dtype, tuple(map(int, lengths)))

    @property
    def nbytes(self) -> int:
        return _BYTES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True)
class Case:
    """One model of one library at two sizes."""

    package: str
    entry: Mapping[str, Any]
    number: int  # of the same short name in its package

    @property
    def name(self) -> str:
        last = str(self.entry["class"]).rsplit(".", 2)
        return f"{self.package}:{last[-2]}.{last[-1]}" + (f"#{self.number}" if self.number else "")

    @property
    def source_size(self) -> Size:
        """Height and width of the image; a signal has a single length."""
        return self.entry["from"][0], self.entry["from"][-1]

    @property
    def target_size(self) -> Size:
        return self.entry["to"][0], self.entry["to"][-1]

    @property
    def is_signal(self) -> bool:
        return len(self.entry["from"]) == 1

    def words(self, size: Size) -> str:
        """Write a size as a user does."""
        return str(size[0]) if self.is_signal else f"{size[0]}x{size[1]}"

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: Tensor.parse(words) for name, words in self.entry["tensors"].items()}

    @property
    def changed(self) -> dict[str, Tensor | None]:
        changed = self.entry["changed"].items()
        return {name: None if words is None else Tensor.parse(words) for name, words in changed}

    @property
    def flags(self) -> list[str]:
        """The command that a user types; a source that is not square is stated, too."""
        height, width = self.source_size
        told = [] if height == width else ["--from", f"{height}x{width}"]
        return [*told, "--to", self.words(self.target_size)]


def cases() -> Iterator[Case]:
    for path in sorted((HERE / "headers").glob("*.json")):
        seen: dict[str, int] = {}
        for entry in json.loads(path.read_text(encoding="utf-8")):
            short = ".".join(str(entry["class"]).rsplit(".", 2)[-2:])
            number = seen.get(short, 0)
            seen[short] = number + 1
            yield Case(path.stem, entry, number)


def materialise(case: Case, path: Path) -> None:
    """Write a safetensors file with smooth values in the tables and zeros elsewhere."""
    header: dict[str, Any] = {}
    place = 0
    for name, tensor in case.tensors.items():
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [place, place + tensor.nbytes],
        }
        place += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()
        file.truncate(start + place)
        for name, data in _values(case):
            file.seek(start + header[name]["data_offsets"][0])
            file.write(data)


def _values(case: Case) -> Iterator[tuple[str, bytes]]:
    recorded = case.entry["values"]
    grid = (case.source_size[0] // 16, case.source_size[1] // 16)
    for name, tensor in case.tensors.items():
        if name.endswith("relative_position_index") and tensor.shape == (_with_class(grid),) * 2:
            yield name, class_index(*grid).astype("<i8").tobytes()
            continue
        side = math.isqrt(tensor.shape[0]) if tensor.shape else 0
        square = tensor.shape == (side * side, side * side) and name not in case.changed
        if name.endswith("relative_position_index") and square:
            yield name, window_index(side).astype("<i8").tobytes()
    for name, target in case.changed.items():
        source = case.tensors[name]
        if name.endswith("relative_position_index"):
            continue
        if name in recorded:
            yield name, unpack(recorded[name][0])
        elif source.dtype in _NUMPY:
            other = None if target is None else target.shape
            values = learned(case, source.shape, other)
            yield name, values.astype(_NUMPY[source.dtype]).tobytes()


def window_index(side: int) -> NDArray[np.int64]:
    """Number the pairs of cells of a window by their offset, as Swin does."""
    rows, columns = np.divmod(np.arange(side * side), side)
    down = rows[:, None] - rows[None] + side - 1
    return np.asarray(down * (2 * side - 1) + columns[:, None] - columns[None] + side - 1, np.int64)


def _with_class(grid: Size) -> int:
    return grid[0] * grid[1] + 1


def class_index(height: int, width: int) -> NDArray[np.int64]:
    """Number the pairs of cells and the class token, as BEiT does."""
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows[:, None] - rows[None] + height - 1
    right = columns[:, None] - columns[None] + width - 1
    offsets = (2 * height - 1) * (2 * width - 1)
    index = np.full((height * width + 1,) * 2, offsets + 2, np.int64)
    index[1:, 1:] = down * (2 * width - 1) + right
    index[0, 1:], index[1:, 0] = offsets, offsets + 1
    return index


def unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def learned(case: Case, source: Shape, target: Shape | None) -> NDArray[np.float64]:
    """Give values as training leaves them: smooth over the grid, with a little noise."""
    noise = _NOISE * np.random.default_rng(11).standard_normal(source)
    field = true_field(case, source, target)
    return noise if field is None else field + noise


def true_field(
    case: Case, source: Shape, target: Shape | None, *, at_goal: bool = False
) -> NDArray[np.float64] | None:
    """Give the smooth part of a table at its own size, or at the new one; None: it has none."""
    same = target is not None and len(target) == len(source)
    axes = [a for a, n in enumerate(source) if same and target is not None and target[a] != n]
    if target is None or len(axes) not in (1, 2):
        return None
    shape = target if at_goal else source
    others = [n for a, n in enumerate(shape) if a not in axes]
    if len(axes) == 2:
        plane = smooth(shape[axes[0]], shape[axes[1]], math.prod(others))
        sides = [shape[a] for a in axes]
        return np.moveaxis(plane.reshape(*sides, *others), (0, 1), axes)
    rows = shape[axes[0]]
    signal = case.is_signal
    found = None if signal else _grid(case, source[axes[0]], target[axes[0]])
    if found is None:
        prefix = _before_signal(case, source[axes[0]], target[axes[0]]) if signal else 0
        before = np.random.default_rng(3).standard_normal((prefix, math.prod(others)))
        line = smooth(1, rows - prefix, math.prod(others))
        field = np.concatenate([before, line])
    else:
        prefix, copies, tall, wide = found
        size = case.target_size if at_goal else case.source_size
        height, width = size[0] // tall, size[1] // wide
        field = np.random.default_rng(5).standard_normal((rows, math.prod(others)))
        plane = smooth(height, width, math.prod(others))
        field[prefix : prefix + copies * height * width] = np.tile(plane, (copies, 1))
        # Rows before the grid stay as they are, whatever the number of rows.
        before = np.random.default_rng(3).standard_normal((prefix, math.prod(others)))
        field[:prefix] = before
    return np.moveaxis(field.reshape(rows, *others), 0, axes[0])


def _before_signal(case: Case, rows: int, goal: int) -> int:
    """Find the rows before those of a signal: the rest has one row for as many steps each."""
    old, new = case.source_size[0], case.target_size[0]
    return next(n for n in range(rows) if (rows - n) * new == (goal - n) * old)


def _kernels(case: Case) -> tuple[set[Size], set[Size]]:
    """List the patches that a file shows: convolutions of pixels, linear layers of colours."""
    shapes = [tensor.shape for tensor in case.tensors.values()]
    found = {s[-2:] for s in shapes if len(s) > 3 and min(s[-2:]) >= 4 and s[1] <= 32}
    sides = {math.isqrt(s[1] // 3) for s in shapes if len(s) == 2 and s[1] % 3 == 0}
    return {(s[0], s[1]) for s in found}, {(s, s) for s in sides if s >= 14}


def _grid(case: Case, rows: int, goal: int) -> tuple[int, int, int, int] | None:
    """Find prefix, copies and the sides of a patch that explain the rows at both sizes."""
    size, target, (kernels, linear) = case.source_size, case.target_size, _kernels(case)

    def unlikely(way: tuple[Size, int]) -> tuple[float, ...]:
        (tall, wide), copies = way
        rest = bool(size[0] % tall or size[1] % wide)
        square = abs(math.log(tall / wide))
        return (
            (tall, wide) not in kernels,
            copies > 1,
            (tall, wide) not in linear,
            rest,
            copies,
            square,
        )

    ways = [((tall, wide), copies) for tall, wide, copies in product(_SIDES, _SIDES, _COPIES)]
    for prefix in (0, 1, 2, 5, 3, 4):
        for (tall, wide), copies in sorted(ways, key=unlikely):
            if (tall != wide and (size[0] % tall or size[1] % wide)) or (prefix > 1 < copies):
                continue
            (h, w), (m, n) = ((s[0] // tall, s[1] // wide) for s in (size, target))
            fits = (copies * h * w + prefix, copies * m * n + prefix) == (rows, goal)
            if fits and min(h, w) > 1 and (copies > 1 or tall == wide or (tall, wide) in kernels):
                return prefix, copies, tall, wide
    return None


def smooth(height: int, width: int, channels: int) -> NDArray[np.float64]:
    """Sum slow waves over the image, each channel with its own weights, at the cells of a grid."""
    along = []
    for count in (height, width):
        places = (np.arange(count) + 0.5) / count
        along.append(np.stack([np.cos(np.pi * k * places) for k in range(_WAVES)], axis=1))
    weights = np.random.default_rng(7).standard_normal((_WAVES, _WAVES, channels))
    weights *= np.exp(-0.5 * np.add.outer(np.arange(_WAVES), np.arange(_WAVES)))[..., None]
    plane: NDArray[np.float64] = np.einsum("ia,jb,abc->ijc", *along, weights)
    return plane.reshape(height * width, channels)


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    kind: str
    words: str
    flags: tuple[str, ...] = ()
    report: Report | None = None


def outcome(case: Case, folder: Path) -> Outcome:
    """Run the tool as a user would, following what it prints."""
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    materialise(case, source)
    flags, told = case.flags, ""
    for attempt in range(_MOST_HINTS):
        try:
            report = run(Job(source, request(flags), output=output, force=True))
        except ResizePosError as error:
            told = told or f"{error.message} ▸ {error.hint}".replace(f"{source.name}: ", "")
            more = _pasted(error.hint or "", case, flags)
            if more is None:
                return Outcome("refused", f"{error.message} ▸ {error.hint}", tuple(flags))
            flags = more
            continue
        fault = difference(case, source, output, report) or misplaced(case, output, report)
        if fault:
            return Outcome("wrong", fault, tuple(flags), report)
        if attempt:
            return Outcome("hint", told, tuple(flags), report)
        return Outcome("right" if case.changed else "unchanged", "", tuple(flags), report)
    return Outcome("refused", f"hints lead nowhere: {told}", tuple(flags))


def _pasted(hint: str, case: Case, flags: list[str]) -> list[str] | None:
    """Take the flags that a hint prints; SIZE stands for the size that the user knows."""
    either = re.search(r"--(?:also|pattern) '([^']*)'.* or (--leave '[^']*')", hint)
    if either is not None and not any(re.search(either[1], name) for name in case.changed):
        hint = either[2]  # the user knows that it is no table
    if "--from" in flags:
        hint = hint.replace(" --from SIZE", "")
    hint = hint.replace("--from SIZE", f"--from {case.words(case.source_size)}")
    added = pasted_flags(hint)
    if not added or re.search(r"HxW|\bN\b|PATTERN|REGEX|SIZE", " ".join(added)):
        return None
    other = (*case.changed, *case.entry["added"])
    if added[0] == "--leave" and any(re.search(added[1], name) for name in other):
        return None  # "if it does not depend on the resolution", and it does
    if any(word.startswith("--") and word not in _FLAGS for word in added):
        return None
    if _FLAGS[added[0]].kind in (Kind.FLAG, Kind.SWITCH):
        added = added[:1]
    elif len(added) < 2:
        return None  # a flag that a sentence mentions without a value
    if added[0] in flags and added[0] not in ("--pattern", "--axes", "--leave"):
        return None
    return [*flags, *added]


def pasted_flags(hint: str) -> list[str]:
    """Take the first flags that stand in a hint, with their values."""
    value = r"(?:'[^']*'|[^\s',;]+)"
    found = re.search(rf"(--[a-z-]+ {value}(?: --[a-z-]+ {value})*|--[a-z-]+)", hint)
    return shlex.split(found[0].rstrip(".)")) if found else []


_FLAGS = {flag: each for each in OPTIONS if isinstance(each, Option) for flag in each.flags}


def request(flags: list[str]) -> Request:
    """Read flags as the command line does."""
    values: dict[str, Any] = {}
    place = 0
    while place < len(flags):
        option = _FLAGS[flags[place]]
        if option.kind in (Kind.FLAG, Kind.SWITCH):
            values[option.name] = True
            place += 1
            continue
        value: Any = flags[place + 1]
        value = int(value) if option.kind is Kind.COUNT else value
        value = [*values.get(option.name, ()), value] if option.kind is Kind.TEXTS else value
        values[option.name] = value
        place += 2
    return Request.make(**values)


def difference(case: Case, source: Path, output: Path, report: Report) -> str:
    """Say what is not as the library's own model has it; empty if nothing is.

    A mask that the model computes itself may be missing, if the run says so.
    """
    before, after = read(source), read(output)
    loose = " ".join(note.text for note in report.plan.notes if "strict=False" in note.text)
    if before.keys() - after.keys() != {n for n, t in case.changed.items() if t is None}:
        return f"tensors vanished: {sorted(before.keys() - after.keys())[:3]}"
    missing = sorted(case.entry["added"].keys() - after.keys())
    if after.keys() - before.keys() != case.entry["added"].keys() and not (
        missing and missing[0] in loose
    ):
        return f"lacks {', '.join(missing[:2])}" if missing else "tensors appeared"
    for name, (tensor, data) in after.items():
        if name not in before:
            continue
        expected = case.changed.get(name) if name in case.changed else before[name][0]
        if tensor != expected:
            shown = None if expected is None else list(expected.shape)
            return f"{name} {list(before[name][0].shape)} → {list(tensor.shape)}, not {shown}"
        if name not in case.changed and data != before[name][1]:
            return f"{name} was touched"
        exact = name in case.entry["values"] and tensor.dtype not in _NUMPY
        if exact and data != unpack(case.entry["values"][name][1]):
            return f"{name} has other values than the library computes"
    return ""


def misplaced(case: Case, output: Path, report: Report) -> str:
    """Say which resized table is not the same field over the image at the new size."""
    written = read(output)
    for step in report.plan.changes:
        tensor, target = case.tensors.get(step.name), case.changed.get(step.name)
        wanted = Role.SEQUENCE if case.is_signal else Role.ABSOLUTE
        image = step.table.role is wanted and step.action is Action.RESIZE
        if not image or tensor is None or target is None or step.name in case.entry["values"]:
            continue
        field = true_field(case, tensor.shape, target.shape, at_goal=True)
        if field is None or target.dtype not in _NUMPY:
            continue
        found = np.frombuffer(written[step.name][1], _NUMPY[target.dtype]).reshape(target.shape)
        changed = [a for a, n in enumerate(target.shape) if tensor.shape[a] != n]
        varied = [each - each.mean(axis=tuple(changed), keepdims=True) for each in (found, field)]
        likeness = float(np.corrcoef(varied[0].ravel(), varied[1].ravel())[0, 1])
        if likeness < _LEAST_LIKENESS:
            return f"{step.name} resembles the true field only by {likeness:.2f}"
    return ""


def read(path: Path) -> dict[str, tuple[Tensor, bytes]]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, info in header.items():
        first, last = info["data_offsets"]
        data = raw[start + first : start + last]
        found[name] = (Tensor(info["dtype"], tuple(info["shape"])), data)
    return found
