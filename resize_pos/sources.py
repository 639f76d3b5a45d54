"""Where a checkpoint comes from, and what a folder has besides tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.config_places import CONFIG_FILES, PLACES, Kind
from resize_pos.config_values import ConfigEdit
from resize_pos.containers import writes_folder
from resize_pos.containers.base import WEIGHT_SUFFIXES, Container
from resize_pos.errors import ContainerError, GeometryError, OutputError
from resize_pos.families import Role
from resize_pos.hub import fetch, parse_hub
from resize_pos.quick import dataclass
from resize_pos.tables import Located

if TYPE_CHECKING:
    from resize_pos.containers.model_folder import LeftOut, ModelFolder

_TEXT_FILES = {place.file for place in PLACES if place.kind is Kind.LENGTH}
_IMAGE_FILES = {place.file for place in PLACES if place.kind is not Kind.LENGTH}


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on this disk."""

    path: Path
    name: str  # in messages
    names: Path  # what the default output is named after, and beside


def resolve_source(given: Path) -> Source:
    """Find a checkpoint; one on the hub is downloaded, and its output belongs to where you are."""
    model = parse_hub(given)
    if model is not None:
        return Source(fetch(model), str(model), Path(model.name))
    if given.name.endswith(".json"):  # an index stands for the folder of its shards
        return Source(given, given.name, given.absolute().parent)
    names = given if given.name not in ("", "..") else given.resolve()
    return Source(given, names.name, names)


def source_name(given: Path) -> str:
    """Write a source as its user would."""
    model = parse_hub(given)
    return str(given if model is None else model)


def config_files(located: Located) -> Iterable[str]:
    """Name the config files worth reading: without a text table, a tokenizer says nothing."""
    if any(table.role is Role.SEQUENCE for table in located.tables):
        return CONFIG_FILES
    return [name for name in CONFIG_FILES if name in _IMAGE_FILES or name not in _TEXT_FILES]


def require_one_geometry(container: Container, located: Located) -> None:
    """Refuse a folder whose weight files are not copies of one another."""
    originals = copies(container)
    tables = {table.name: table for table in located.tables}
    for name, original in originals.items():
        mine, first = tables.get(name), tables.get(original)
        if mine is None or first is None:
            continue
        ours = (mine.grid, mine.prefix, mine.suffix)
        theirs = (first.grid, first.prefix, first.suffix)
        if ours != theirs:
            raise GeometryError(
                f"{name} is {mine.grid} with {mine.prefix} prefix rows, but {original} of the "
                f"first weight file is {first.grid} with {first.prefix}: these are not copies of "
                "one model.",
                hint="convert the files one by one.",
            )


def require_convertible(container: Container, names: Collection[str]) -> None:
    """Refuse, before anything is written, what a container cannot change without breaking."""
    if not writes_folder(container):
        return
    from resize_pos.containers.dcp import DistributedCheckpoint

    if isinstance(container, DistributedCheckpoint):
        container.require_no_state(names)
    elif (folder := _model_folder(container)) is not None:
        for unit in folder.units.values():
            if names and getattr(unit, "optimizers", ()):
                raise ContainerError(
                    f"{unit.path.name} holds the state of an optimizer.",
                    f"Convert that file by itself: resize-pos {unit.path}",
                )


def prepare(
    container: Container,
    texts: Mapping[str, str],
    edits: Sequence[ConfigEdit],
    *,
    copy: bool,
) -> Container:
    """Set a folder up to be written with its configs edited."""
    if not writes_folder(container):
        return container
    from resize_pos.config_edits import apply_edits
    from resize_pos.containers.dcp import DistributedCheckpoint
    from resize_pos.containers.sharded import ShardedCheckpoint

    if isinstance(container, ShardedCheckpoint | DistributedCheckpoint):
        return container.copying(copy)
    folder = _model_folder(container)
    if folder is None:
        return container
    new = {}
    for file in dict.fromkeys(edit.file for edit in edits):
        new[file] = apply_edits(texts[file], [edit for edit in edits if edit.file == file])
    return folder.edited(new, copy=copy)


def copies(container: Container) -> Mapping[str, str]:
    """Name the tensors of further weight files, each with its name in the first."""
    folder = _model_folder(container)
    return {} if folder is None else folder.copies


def left_out(container: Container) -> tuple[LeftOut, ...]:
    """Name the files that a converted folder does not get."""
    folder = _model_folder(container)
    return () if folder is None else folder.left_out


def _model_folder(container: Container) -> ModelFolder | None:
    if not writes_folder(container):
        return None
    from resize_pos.containers.model_folder import ModelFolder  # a lone file has no use for it

    return container if isinstance(container, ModelFolder) else None


def require_other_place(source: Path, output: Path, *, folder: bool) -> None:
    """Refuse a target that is the source, is inside of it, or holds it."""
    if folder and output.suffix in WEIGHT_SUFFIXES:
        raise OutputError(
            f"{output}: is the name of a file, but the output is a folder.",
            hint="name a folder with -o, or convert the weight file alone.",
        )
    real, target = source.resolve(), output.resolve()
    same = target == real or (output.exists() and output.samefile(source))
    if same:
        raise OutputError(
            f"{output}: the target is the source, which is never modified.",
            hint="pass another path with -o.",
        )
    if real.is_dir() and target.is_relative_to(real):
        raise OutputError(
            f"{output}: the target is inside the source, which is never modified.",
            hint="pass a path outside of it with -o.",
        )
    if folder and real.is_relative_to(target):
        raise OutputError(
            f"{output}: the source is inside the target, which would be replaced.",
            hint="pass another path with -o.",
        )
