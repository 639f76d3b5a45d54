"""Model folders: weights in one or several files, configs, and everything else that lies there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from resize_pos.containers.base import WEIGHT_SUFFIXES, Container, Copied, peek_into
from resize_pos.containers.io.link_or_copy import carry_over, require_inside, require_no_pointer
from resize_pos.containers.sharded import Opener, ShardedCheckpoint, is_index
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T")

# Likeliest first: the first weights found speak for the folder, the others are their copies.
_WEIGHT_NAMES = re.compile(r"(pytorch_|open_clip_|diffusion_pytorch_)*model[\w.-]*")

# What training leaves beside the weights. None of it is a checkpoint of the model.
_TRAINING = re.compile(r"(training_args|scheduler|rng_state|random_states|scaler|loss)[\w.-]*")

# A copy of these would state the old resolution in a folder that promises the new one.
_STALE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r".*\.(h5|msgpack|onnx|onnx_data|gguf|tflite|ot)"), "weights we cannot convert"),
    (re.compile(r"optimizer[\w.-]*\.(pt|bin|pth|safetensors)"), "optimizer state, keyed by number"),
)
_SKIPPED_FOLDERS = {".git": "version control", ".cache": "a download cache"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that the new folder does not get, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ModelFolder:
    """A folder whose weights have all been opened; their tensors are read one by one."""

    path: Path
    tensors: Mapping[str, TensorInfo]  # of further weights under `FILE/NAME`
    units: Mapping[str, Container] = field(repr=False)  # by the prefix of their tensors
    others: tuple[str, ...] = field(repr=False)
    left_out: tuple[LeftOut, ...]
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)  # written instead of copied
    copy: bool = False

    @classmethod
    def open(cls, path: Path, opener: Opener) -> ModelFolder:
        """Find and open every weight file at the top of a folder."""
        path = path if path.name not in ("", "..") else path.resolve()
        files, stale = _scan(path)
        if not files:
            raise ContainerError(f"{path.name}: the folder is empty.")
        containers = list(_open_weights(path, files, opener))
        if not containers:
            raise _no_weights(path, files)
        units = {"" if i == 0 else f"{c.path.name}/": c for i, c in enumerate(containers)}
        tensors: dict[str, TensorInfo] = {}
        for prefix, unit in units.items():
            for name, info in unit.tensors.items():
                if prefix + name in tensors:
                    raise ContainerError(f"{path.name}: two tensors are called {prefix + name}.")
                tensors[prefix + name] = replace(info, name=prefix + name)
        known = {name for unit in containers for name in _files_of(unit)}
        others = tuple(name for name in files if name not in known)
        return cls(path, tensors, units, others, stale)

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        words = [f"{unit.path.name} ({unit.format})" for unit in self.units.values()]
        return f"model folder with {', '.join(words)}"

    @property
    def metadata(self) -> Mapping[str, str]:
        """The strings kept in the weights; the first file that has a key speaks for it."""
        merged: dict[str, str] = {}
        for unit in self.units.values():
            merged = {**unit.metadata, **merged}
        return merged

    @property
    def copies(self) -> Mapping[str, str]:
        """The tensors of further weight files, each with the name it has in its own file."""
        return {
            prefix + name: name
            for prefix, unit in self.units.items()
            if prefix
            for name in unit.tensors
        }

    def edited(self, texts: Mapping[str, str], *, copy: bool) -> ModelFolder:
        """Give the same folder with new texts for some files, set to copy or to link the others."""
        units = {
            prefix: unit.copying(copy) if isinstance(unit, ShardedCheckpoint) else unit
            for prefix, unit in self.units.items()
        }
        return replace(self, units=units, texts=dict(texts), copy=copy)

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        if name not in self.tensors:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        prefix = self._prefix(name)
        return self.units[prefix].read(name.removeprefix(prefix))

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        prefix = self._prefix(name)
        return peek_into(self.units[prefix], name.removeprefix(prefix), start, count)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how much is written: an upper bound, as if nothing could be linked."""
        total = sum(
            unit.output_bytes(self._own(prefix, shapes)) for prefix, unit in self.units.items()
        )
        return total + sum((self.path / name).stat().st_size for name in self.others)

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder in which only `changes` and the edited texts differ."""
        stage.mkdir()
        copied = Copied(0, 0)
        for prefix, unit in self.units.items():
            copied += self._write_unit(unit, stage, self._own(prefix, changes), metadata)
        dropped = {entry.name for entry in self.left_out} if changes else set()
        for name in self.others:
            if name in dropped:
                continue
            target = stage / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in self.texts:
                target.write_bytes(self.texts[name].encode())
            else:
                linked = carry_over(self.path / name, target, copy=self.copy)
                copied += Copied(0, 0, files=1, linked=int(linked))
        return copied

    def _write_unit(
        self,
        unit: Container,
        stage: Path,
        changes: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str],
    ) -> Copied:
        if isinstance(unit, ShardedCheckpoint):
            return unit.write_into(stage, changes, metadata)
        target = stage / unit.path.name
        if changes:
            return unit.write(target, changes, metadata)
        linked = carry_over(unit.path, target, copy=self.copy)
        size = sum(info.nbytes for info in unit.tensors.values())
        return Copied(len(unit.tensors), size, linked=int(linked))

    def _prefix(self, name: str) -> str:
        return next((p for p in self.units if p and name.startswith(p)), "")

    def _own(self, prefix: str, values: Mapping[str, _T]) -> dict[str, _T]:
        return {
            name.removeprefix(prefix): value
            for name, value in values.items()
            if self._prefix(name) == prefix
        }


def _scan(folder: Path) -> tuple[list[str], tuple[LeftOut, ...]]:
    """List every file by its path in the folder, and what would be out of date in a copy."""
    files, left_out = [], []
    for parent, folders, names in os.walk(folder, onerror=_unreadable):
        relative = Path(parent).relative_to(folder)
        for name in list(folders):
            inside = (relative / name).as_posix()
            if name in _SKIPPED_FOLDERS:
                left_out.append(LeftOut(f"{inside}/", _SKIPPED_FOLDERS[name]))
                folders.remove(name)
            elif (folder / inside).is_symlink():
                raise ContainerError(
                    f"{folder.name}/{inside}: is a link to a folder.",
                    f"If that is wanted, make a plain copy first: cp -rL {folder} COPY",
                )
        folders.sort()
        for name in sorted(names):
            inside = (relative / name).as_posix()
            path = require_inside(folder, inside)
            if not path.is_file():
                raise ContainerError(f"{folder.name}/{inside}: is neither a file nor a folder.")
            files.append(inside)
            left_out += [LeftOut(inside, why) for what, why in _STALE if what.fullmatch(name)][:1]
    return files, tuple(left_out)


def _unreadable(error: OSError) -> None:
    name = Path(error.filename or "").name
    raise ContainerError(f"{name}: cannot be read: {error.strerror}.") from error


def _open_weights(folder: Path, files: list[str], opener: Opener) -> Iterator[Container]:
    """Open the weights at the top, those that speak for the folder first."""
    top = [name for name in files if "/" not in name]
    indexes = [ShardedCheckpoint.open(folder / n, opener) for n in top if is_index(Path(n))]
    sharded = {name for index in indexes for name in index.files}
    singles = []
    for name in top:
        path = folder / name
        if name in sharded or path.suffix not in WEIGHT_SUFFIXES or _is_training(name):
            continue
        require_no_pointer(path)
        try:
            singles.append(opener(path))
        except ContainerError:
            # Sentencepiece and others call their files .bin, too. What is named like weights has
            # to be weights.
            if path.suffix == ".safetensors" or _WEIGHT_NAMES.fullmatch(name):
                raise
    yield from sorted([*singles, *indexes], key=_rank)


def _is_training(name: str) -> bool:
    stale = any(pattern.fullmatch(name) for pattern, _ in _STALE)
    return stale or _TRAINING.fullmatch(name) is not None


def _rank(unit: Container) -> tuple[int, int, int, str]:
    """Order weights: by format, those with the plain name before variants such as fp16."""
    first = next(iter(unit.shards)) if isinstance(unit, ShardedCheckpoint) else unit.path.name
    plain = re.fullmatch(r"[\w-]+\.\w+", first) is not None
    named = _WEIGHT_NAMES.fullmatch(first) is not None
    return WEIGHT_SUFFIXES.index(Path(first).suffix), -named, -plain, unit.path.name


def _files_of(unit: Container) -> tuple[str, ...]:
    return unit.files if isinstance(unit, ShardedCheckpoint) else (unit.path.name,)


def _no_weights(folder: Path, files: list[str]) -> ContainerError:
    below = sorted({n.rsplit("/", 1)[0] for n in files if "/" in n and n.endswith(WEIGHT_SUFFIXES)})
    if below:
        return ContainerError(
            f"{folder.name}: no weights at the top of the folder, but in {', '.join(below[:5])}.",
            f"Name that one: {folder / below[0]}",
        )
    foreign = [name for name in files if _STALE[0][0].fullmatch(name)]
    found = f"; {foreign[0]} cannot be converted" if foreign else ""
    return ContainerError(
        f"{folder.name}: no weights among its {len(files)} files{found}.",
        f"Looked for {', '.join('*' + suffix for suffix in WEIGHT_SUFFIXES)} and their indexes.",
    )
