"""Files that a conversion does not change: copied into the new folder, or linked on request."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import CopyRange, write_spliced
from resize_pos.core.errors import ContainerError

# With --link, smaller files are still copied: a link would save almost nothing, and an edit of the
# new README would also change the source's.
LINK_FROM = 1 << 20

LFS_POINTER = b"version https://git-lfs"


def link_or_copy(source: SourceFile, target: Path, *, link: bool) -> bool:
    """Copy or link one unchanged file to `target`; return whether it became a hard link.

    A copy shares its blocks with the source if the file system supports it (XFS, btrfs). A file
    behind a symbolic link is always copied: it is in the hub's cache, which other programs use.
    """
    local = not source.is_remote and not isinstance(target, RemotePath)
    if link and local and source.size >= LINK_FROM and not source.path.is_symlink():
        source.require_unchanged()
        try:
            os.link(source.path, target)
        except OSError:  # another disk, or a file system without hard links
            pass
        else:
            return True
    write_spliced(source, target, [CopyRange(0, source.size)])
    return False


def require_bare(name: object, where: str) -> str:
    """Refuse a file name that could lead out of its folder."""
    if not isinstance(name, str) or not name:
        raise ContainerError(f"{where}: {name!r} is not a file name.")
    if name in (".", "..") or any(mark in name for mark in "/\\:\0"):
        raise ContainerError(
            f"{where}: {name!r} leads out of the folder.",
            "Shards lie beside their index; an index from an untrusted source may name any path.",
        )
    return name


def require_inside(folder: Path, relative: str) -> Path:
    """Refuse a symbolic link that leads out of the folder, except into the cache of the hub."""
    path = folder / PurePosixPath(relative)
    if not path.is_symlink():
        return path
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: the link leads back to itself
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
    if SourceFile.of(path).beginning(len(LFS_POINTER)) == LFS_POINTER:
        raise ContainerError(
            f"{path.name}: this is a git-LFS pointer, not the weights.",
            "Fetch the weights with `git lfs pull`.",
        )
