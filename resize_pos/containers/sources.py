"""Where a checkpoint comes from, and what a folder has besides tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.base import WEIGHT_SUFFIXES, Container
from resize_pos.containers.detect import writes_folder
from resize_pos.containers.hub import fetch, parse_hub
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.model_folder import LeftOut, ModelFolder


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


def require_convertible(container: Container, names: Collection[str]) -> None:
    """Refuse, before anything is written, what a container cannot change without breaking."""
    if not writes_folder(container):
        return
    from resize_pos.containers.dcp.checkpoint import DistributedCheckpoint

    if isinstance(container, DistributedCheckpoint):
        container.require_no_state(names)
    elif (folder := model_folder_of(container)) is not None:
        for unit in folder.units.values():
            if names and getattr(unit, "optimizers", ()):
                raise ContainerError(
                    f"{unit.path.name} holds the state of an optimizer.",
                    f"Convert that file by itself: resize-pos {unit.path}",
                )


def copies(container: Container) -> Mapping[str, str]:
    """Name the tensors of further weight files, each with its name in the first."""
    folder = model_folder_of(container)
    return {} if folder is None else folder.copies


def left_out(container: Container) -> tuple[LeftOut, ...]:
    """Name the files that a converted folder does not get."""
    folder = model_folder_of(container)
    return () if folder is None else folder.left_out


def model_folder_of(container: Container) -> ModelFolder | None:
    """Give the model folder that a container is, if it is one."""
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
