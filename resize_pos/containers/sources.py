"""Where a checkpoint comes from: a path, or a model on the hub."""

from __future__ import annotations

import os
from pathlib import Path

from resize_pos.containers.base import Container
from resize_pos.containers.detect import WEIGHT_SUFFIXES, is_index, open_container
from resize_pos.containers.hub import hub_name, parse_hub
from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint: a path on this disk, or an address in a store."""

    path: Path
    name: str  # in messages
    names: Path  # the default output is named after this path and placed beside it


def resolve_source(given: Path) -> Source:
    """Find a checkpoint. The output of a model on the hub goes to the current folder."""
    given = place(given)
    if isinstance(given, RemotePath):
        from resize_pos.containers.remote.tree import forget

        forget(given)  # see the store as it is now
    model = parse_hub(given)
    if model is not None:
        from resize_pos.containers.hub_files import locate

        return Source(locate(model), str(model), Path(model.name))
    _require_hub_address(given)
    if is_index(given.name):  # an index means the folder that contains its shards
        return Source(given, given.name, given.absolute().parent)
    if isinstance(given, RemotePath) and given.scheme in ("http", "https"):
        return Source(given, given.name, Path(given.name))  # nothing is written to a web server
    names = given if given.name not in ("", "..") else given.resolve()
    return Source(given, names.name, names)


_HUB_PAGE = lazy_regex(
    r"https?:/+(?:huggingface\.co|hf\.co)/(?P<model>[\w.-]+/[\w.-]+)(?:/tree/[^/]+)?/?"
)


def _require_hub_address(given: Path) -> None:
    """Say how to write the name of a model on the hub, if that is what was meant."""
    page = _HUB_PAGE.fullmatch(str(given)) if isinstance(given, RemotePath) else None
    if page is not None:
        raise ContainerError(
            f"{given}: this is the web page of a model, not a file.",
            f"For the model on the hub, write hf://{page['model']}",
        )
    address = hub_name(given)
    if address is not None and not os.path.lexists(given):
        raise ContainerError(
            f"{given}: no such file or folder.", f"For the model on the hub, write {address}"
        )


def expect_upload(source: Path, output: Path | None) -> None:
    """Prepare to copy from one object to another: read enough of the source at once."""
    if isinstance(source, RemotePath) or isinstance(output, RemotePath):
        from resize_pos.core.memory import give_back_freed_memory

        give_back_freed_memory()
    if isinstance(source, RemotePath) and isinstance(output, RemotePath) and output.scheme == "s3":
        from resize_pos.containers.remote.tree import will_be_uploaded

        will_be_uploaded(source)


def open_source(given: Path) -> Container:
    """Open a checkpoint that a user named: a path, or `hf://org/name`."""
    return open_container(resolve_source(given).path)


def source_name(given: Path) -> str:
    """Return the name of a source as a user would type it."""
    model = parse_hub(given)
    return str(given if model is None else model)


def require_other_place(source: Path, output: Path, *, folder: bool) -> None:
    """Refuse a target that is the source, lies inside it, or contains it."""
    if folder and output.name.endswith(WEIGHT_SUFFIXES):
        raise OutputError(
            f"{output}: is the name of a file, but the output is a folder.",
            hint="name a folder with -o, or convert the weight file alone.",
        )
    if isinstance(source, RemotePath) != isinstance(output, RemotePath):
        return
    real, target = source.resolve(), output.resolve()
    remote = isinstance(output, RemotePath)
    same = target == real or (not remote and output.exists() and output.samefile(source))
    if same:
        raise OutputError(
            f"{output}: the target is the source, which is never modified.",
            hint="pass another path with -o.",
        )
    if target.is_relative_to(real) and real.is_dir():
        raise OutputError(
            f"{output}: the target is inside the source, which is never modified.",
            hint="pass a path outside of it with -o.",
        )
    if folder and real.is_relative_to(target):
        raise OutputError(
            f"{output}: the source is inside the target, which would be replaced.",
            hint="pass another path with -o.",
        )
