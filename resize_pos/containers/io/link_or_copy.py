"""Files that a conversion does not change: linked or copied into the new folder."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from resize_pos.containers.io.splice import CopyRange, write_spliced
from resize_pos.core.errors import ContainerError

# Small files are copied in any case: a link saves nothing, and whoever then edits the README of
# the new folder would edit the source's. What is reached through a link lies in the hub's cache,
# which others share: it is copied, too.
LINK_FROM = 1 << 20

LFS_POINTER = b"version https://git-lfs"


def carry_over(source: Path, target: Path, *, copy: bool) -> bool:
    """Bring one file to `target`; tell whether it is a hard link."""
    real = source.resolve()
    size = real.stat().st_size
    if not copy and size >= LINK_FROM and not source.is_symlink():
        try:
            os.link(real, target)
        except OSError:  # another disk, or a file system without links
            pass
        else:
            return True
    write_spliced(real, target, [CopyRange(0, size)])
    return False


def require_bare(name: object, where: str) -> str:
    """Refuse a file name that could lead out of its folder."""
    if not isinstance(name, str) or not name:
        raise ContainerError(f"{where}: {name!r} is not a file name.")
    if name in (".", "..") or any(mark in name for mark in "/\\:\0"):
        raise ContainerError(
            f"{where}: {name!r} leads out of the folder.",
            "Shards lie beside their index; an index from a stranger may name anything.",
        )
    return name


def require_inside(folder: Path, relative: str) -> Path:
    """Refuse a link that leads out of the folder; the hub's cache, made of links, is known."""
    path = folder / PurePosixPath(relative)
    if not path.is_symlink():
        return path
    try:
        real = path.resolve(strict=True)
    except OSError as error:
        raise ContainerError(f"{folder.name}/{relative}: is a link to nothing.") from error
    root = folder.resolve()
    blobs = root.parent.parent / "blobs" if root.parent.name == "snapshots" else root
    if real.is_relative_to(root) or real.is_relative_to(blobs):
        return path
    raise ContainerError(
        f"{folder.name}/{relative}: is a link to {real}, out of the folder.",
        f"If that is wanted, make a plain copy first: cp -rL {folder} COPY",
    )


def require_no_pointer(path: Path) -> None:
    """Refuse weights that git-LFS has not fetched."""
    try:
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
    except OSError as error:
        raise ContainerError(f"{path.name}: cannot be read: {error.strerror}.") from error
    if start == LFS_POINTER:
        raise ContainerError(
            f"{path.name}: this is a git-LFS pointer, not the weights.",
            "Fetch the weights with `git lfs pull`.",
        )
