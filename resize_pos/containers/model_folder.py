"""Model folders: weights in one or several files, configs, and all other files in the folder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from resize_pos.containers.base import (
    Container,
    Copied,
    GeometryChange,
    LeftOut,
)
from resize_pos.containers.detect import (
    GRAPH_SUFFIXES,
    SAFETENSORS_SUFFIX,
    WEIGHT_SUFFIXES,
    is_index,
    open_container,
)
from resize_pos.containers.io.link_or_copy import (
    link_or_copy,
    require_inside,
    require_no_pointer,
)
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile, unreadable
from resize_pos.containers.several_files import PartsContainer
from resize_pos.containers.sharded import ShardedCheckpoint
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T")

# The names that libraries give to the weights of a model.
_WEIGHT_NAMES = lazy_regex(r"(pytorch_|open_clip_|diffusion_pytorch_)*model[\w.-]*")

# Files that training writes beside the weights. None of them is a checkpoint of the model.
_TRAINING = lazy_regex(r"(training_args|scheduler|rng_state|random_states|scaler|loss)[\w.-]*")

# Not copied: these files would still have the old resolution in a folder for the new one.
_STALE: tuple[tuple[re.Pattern[str], str], ...] = (
    (lazy_regex(r".*\.(h5|msgpack|gguf|tflite|ot)"), "weights we cannot convert"),
    (
        lazy_regex(rf".*({'|'.join(map(re.escape, GRAPH_SUFFIXES))})([._]data)?"),
        "a graph for the old size; convert it by itself",
    ),
    (
        lazy_regex(rf"optimizer[\w.-]*({'|'.join(map(re.escape, WEIGHT_SUFFIXES))})"),
        "optimizer state, keyed by number",
    ),
)
_SKIPPED_FOLDERS = {".git": "version control", ".cache": "a download cache"}


@dataclass(frozen=True, slots=True, eq=False)
class ModelFolder(PartsContainer):
    """A folder whose weights have all been opened; their tensors are read one by one."""

    path: Path
    tensors: Mapping[str, TensorInfo]  # those of further weights are called `FILE/NAME`
    units: Mapping[str, Container] = field(repr=False)  # by the prefix of their tensors
    others: Mapping[str, SourceFile] = field(repr=False)  # files that are not weights, by name
    stale: tuple[LeftOut, ...]
    edited_files: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # written instead of copied
    link: bool = False

    owns_configs = True

    @classmethod
    def open(cls, path: Path) -> ModelFolder:
        """Find and open every weight file at the top of a folder."""
        path = path if path.name not in ("", "..") else path.resolve()
        files, stale = _scan(path)
        if not files:
            raise ContainerError(f"{path.name}: the folder is empty.")
        containers = list(_open_weights(path, list(files)))
        if not containers:
            raise _no_weights(path, list(files))
        units = {"" if i == 0 else f"{c.path.name}/": c for i, c in enumerate(containers)}
        tensors: dict[str, TensorInfo] = {}
        for prefix, unit in units.items():
            for name, info in unit.tensors.items():
                if prefix + name in tensors:
                    raise ContainerError(f"{path.name}: two tensors are called {prefix + name}.")
                tensors[prefix + name] = replace(info, name=prefix + name)
        weights = {name for unit in containers for name in unit.files}
        others = {name: file for name, file in files.items() if name not in weights}
        stale = tuple(entry for entry in stale if entry.name not in weights)
        return cls(path, tensors, units, others, stale)

    @property
    def config_folder(self) -> Path:
        """The folder itself."""
        return self.path

    @property
    def parts(self) -> Iterable[Container]:
        """The weights: single files, and sharded checkpoints."""
        return self.units.values()

    def locate(self, name: str) -> tuple[Container, str]:
        """Return the weights that hold a tensor, and its name there."""
        prefix = self._prefix(name)
        return self.units[prefix], name.removeprefix(prefix)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files that are not copied to a converted folder."""
        return self.stale

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        words = [f"{unit.path.name} ({unit.format})" for unit in self.units.values()]
        return f"model folder with {', '.join(words)}"

    @property
    def copies(self) -> Mapping[str, str]:
        """The tensors of further weight files, each with the name it has in its own file."""
        return {
            prefix + name: name
            for prefix, unit in self.units.items()
            if prefix
            for name in unit.tensors
        }

    def require_convertible(self, names: Collection[str]) -> None:
        """Refuse to change weights whose optimizer state lies in the same file."""
        for unit in self.parts:
            if names and unit.optimizers:
                raise ContainerError(
                    f"{unit.path.name} holds the state of an optimizer.",
                    f"Convert that file by itself: resize-pos {unit.path}",
                )

    def at_size(self, change: GeometryChange) -> ModelFolder:
        """Prepare the graphs among the weights for the new size."""
        units = {
            prefix: unit.at_size(self._own_change(prefix, change)) if own else unit
            for prefix, unit in self.units.items()
            for own in [self._own(prefix, change.shapes)]
        }
        return replace(self, units=units)

    @property
    def image_sizes(self) -> Mapping[str, Size]:
        """The image sizes that the weights themselves state."""
        return {
            f"{unit.path.name}, {place}": size
            for unit in self.units.values()
            for place, size in unit.image_sizes.items()
        }

    def with_configs(self, edited_files: Mapping[str, str], *, link: bool) -> ModelFolder:
        """Return the same folder with new content for some files; copy or link the rest."""
        return replace(self, edited_files=dict(edited_files), link=link)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the bytes written: every file is counted as copied."""
        total = sum(
            unit.output_bytes(self._own(prefix, shapes)) for prefix, unit in self.units.items()
        )
        return total + sum(file.size for file in self.others.values())

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Make a folder in which only `changes` and the edited files differ."""
        stage.mkdir()
        copied = Copied(0, 0)
        for prefix, unit in self.units.items():
            copied += unit.write_into(stage, self._own(prefix, changes), metadata, link=self.link)
        dropped = {entry.name for entry in self.stale} if changes else set()
        others = {name: file for name, file in self.others.items() if name not in dropped}
        return copied + write_others(stage, others, self.edited_files, link=self.link)

    def _prefix(self, name: str) -> str:
        return next((p for p in self.units if p and name.startswith(p)), "")

    def _own_change(self, prefix: str, change: GeometryChange) -> GeometryChange:
        via = None if change.via is None else self._own_change(prefix, change.via)
        return replace(change, shapes=self._own(prefix, change.shapes), via=via)

    def _own(self, prefix: str, values: Mapping[str, _T]) -> dict[str, _T]:
        return {
            name.removeprefix(prefix): value
            for name, value in values.items()
            if self._prefix(name) == prefix
        }


def write_others(
    stage: Path, others: Mapping[str, SourceFile], edited_files: Mapping[str, str], *, link: bool
) -> Copied:
    """Copy or link the files that are not weights into a new folder; write edited ones anew."""
    copied = Copied(0, 0)
    for name, file in others.items():
        target = stage / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in edited_files:
            file.require_unchanged()  # the new text was made from the old one
            target.write_bytes(edited_files[name].encode())
        else:
            linked = link_or_copy(file, target, link=link)
            copied += Copied(0, 0, files=1, linked=int(linked))
    return copied


def _scan(folder: Path) -> tuple[dict[str, SourceFile], tuple[LeftOut, ...]]:
    """Return every file by its path in the folder, and the files that would be out of date."""
    if isinstance(folder, RemotePath):
        return _scan_remote(folder)
    files: dict[str, SourceFile] = {}
    left_out: list[LeftOut] = []
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
            if not path.is_file():  # a pipe or a device: opening it could block
                raise ContainerError(f"{folder.name}/{inside}: is neither a file nor a folder.")
            files[inside] = SourceFile.of(path)
            left_out += _stale(inside, name)
    return files, tuple(left_out)


def _scan_remote(folder: RemotePath) -> tuple[dict[str, SourceFile], tuple[LeftOut, ...]]:
    """List every object below a URL, as `_scan` lists the files of a folder."""
    from resize_pos.containers.remote.tree import walked

    files: dict[str, SourceFile] = {}
    left_out: dict[LeftOut, None] = {}
    for inside, file in walked(folder).items():
        parts = inside.split("/")
        skipped = next((n for n, part in enumerate(parts[:-1]) if part in _SKIPPED_FOLDERS), None)
        if skipped is not None:
            where = "/".join(parts[: skipped + 1])
            left_out[LeftOut(f"{where}/", _SKIPPED_FOLDERS[parts[skipped]])] = None
        elif ".." in parts:
            raise ContainerError(f"{folder}: {inside!r} leads out of the folder.")
        else:
            files[inside] = file
            left_out.update(dict.fromkeys(_stale(inside, parts[-1])))
    return files, tuple(left_out)


def _stale(inside: str, name: str) -> list[LeftOut]:
    return [LeftOut(inside, why) for what, why in _STALE if what.fullmatch(name)][:1]


def _unreadable(error: OSError) -> None:
    raise unreadable(Path(error.filename or ""), error) from error


def _open_weights(folder: Path, files: list[str]) -> Iterator[Container]:
    """Open the weights at the top of the folder; the first ones take precedence."""
    top = [name for name in files if "/" not in name]
    indexes = [ShardedCheckpoint.open(folder / name) for name in top if is_index(name)]
    sharded = {name for index in indexes for name in index.files}
    singles = []
    for name in top:
        path = folder / name
        if name in sharded or not name.endswith(WEIGHT_SUFFIXES) or _is_training(name):
            continue
        require_no_pointer(path)
        try:
            singles.append(open_container(path))
        except ContainerError:
            # Sentencepiece and others use the same suffixes, so a file that cannot be opened is
            # skipped, unless its name is one that libraries give to weights.
            if path.suffix == SAFETENSORS_SUFFIX or _WEIGHT_NAMES.fullmatch(name):
                raise
    if not singles and not indexes:
        graphs = (name for name in top if name.endswith(GRAPH_SUFFIXES))
        singles = [open_container(folder / name) for name in graphs]
    yield from sorted([*singles, *indexes], key=_rank)


def _is_training(name: str) -> bool:
    stale = any(pattern.fullmatch(name) for pattern, _ in _STALE)
    return stale or _TRAINING.fullmatch(name) is not None


def _rank(unit: Container) -> tuple[int, int, int, str]:
    """Order weights: by format, those with the plain name before variants such as fp16."""
    file = unit.files[-1]  # for shards use the last file, because the first is the index
    plain = re.fullmatch(r"[\w-]+\.\w+", file) is not None
    named = _WEIGHT_NAMES.fullmatch(file) is not None
    order = (*WEIGHT_SUFFIXES, Path(file).suffix)  # an index may name shards with any suffix
    return order.index(Path(file).suffix), -named, -plain, unit.path.name


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
