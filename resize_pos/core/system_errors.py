"""Trouble that is the system's, not ours: what went wrong with which file, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from os import fsdecode

from resize_pos.core.errors import ResizePosError

# errno → the cause in words, and a hint for a file that should have been written.
CAUSES: Mapping[int, tuple[str, str | None]] = {
    errno.EACCES: ("permission denied", "Choose a folder you may write to with -o."),
    errno.EPERM: ("permission denied", "Choose a folder you may write to with -o."),
    errno.EROFS: ("the file system is read-only", "Choose another folder with -o."),
    errno.ENOSPC: (
        "no space left on the device",
        "Free some space, or choose another disk with -o.",
    ),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, or choose another disk with -o."),
    errno.EFBIG: ("the file system allows no file this large", "Choose another disk with -o."),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter name with -o."),
    errno.ENOENT: ("no such file or folder", None),
    errno.ENOTDIR: ("a part of the path is not a folder", None),
    errno.ELOOP: ("a link in the path leads back to itself", None),
    errno.EIO: ("input/output error: the disk or the network failed", None),
}


_LOOP = "Symlink loop from "  # what Path.resolve says of a link that leads back to itself


def cause(error: OSError) -> tuple[str, str | None]:
    """Put into words why the system refused, with a hint for a file that should be written."""
    words = error.strerror or str(error) or type(error).__name__
    return CAUSES.get(error.errno or 0, (words, None))


def _stands_somewhere() -> bool:
    from pathlib import Path  # --help needs it nowhere else

    try:
        Path.cwd()
    except OSError:
        return False
    return True


def system_error(error: BaseException) -> ResizePosError | None:
    """Translate an error that the system raised; None for any other, which is a bug of ours."""
    if isinstance(error, OSError):
        words, _ = cause(error)
        if error.filename is None:
            if error.errno == errno.ENOENT and not _stands_somewhere():
                return ResizePosError(
                    "the current folder does not exist any more.", "Change to another one with cd."
                )
            return ResizePosError(f"the system reports: {words}.")
        return ResizePosError(f"{fsdecode(error.filename)}: {words}.")
    if isinstance(error, RuntimeError) and str(error).startswith(_LOOP):  # Python 3.11 and 3.12
        path = str(error).removeprefix(_LOOP).strip("'\"")
        return ResizePosError(f"{path}: {CAUSES[errno.ELOOP][0]}.")
    if isinstance(error, MemoryError):
        return ResizePosError(
            "out of memory.", "Close other programs, or raise the memory limit of this process."
        )
    if isinstance(error, ImportError):
        name = (error.name or "a library").split(".")[0]
        return ResizePosError(
            f"{name} cannot be imported: {error}",
            "Install resize-pos again, with its dependencies, in this environment.",
        )
    return None
