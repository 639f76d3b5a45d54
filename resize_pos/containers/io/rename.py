"""Renames that the standard library lacks: one that never replaces, and one that exchanges.

`os.rename` replaces silently on POSIX. Asking first whether the target exists leaves a moment in
which another program can create it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_NOREPLACE, _EXCHANGE = 1, 2

# The kernel, the C library or the file system does not know the flag, or there are no hard links.
_UNSUPPORTED = frozenset(
    {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK, errno.EXDEV}
    | {getattr(errno, "ENOTSUP", errno.EOPNOTSUPP)}
)


def rename_new(stage: Path, target: Path) -> None:
    """Rename `stage` to `target`; raise `FileExistsError` if anything has that name.

    Linux has a system call for it. Elsewhere a file gets a second name, which fails if the name is
    taken, and loses its first one. Where hard links are missing, too (FAT, some network disks), the
    name is looked up just before the rename: a target that another program creates in between is
    replaced. For a folder that fallback replaces an empty folder at most.
    """
    if _renameat2(stage, target, _NOREPLACE):
        return
    if not stage.is_dir():
        try:
            os.link(stage, target, follow_symlinks=False)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _UNSUPPORTED:
                raise
        else:
            # The target is in place. A stage that stays is removed by the next run.
            with contextlib.suppress(OSError):
                stage.unlink()
            return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    try:
        stage.rename(target)  # on Windows this refuses to replace
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # what a folder is told that is in the way
            raise FileExistsError(*error.args) from error
        raise


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step; False where the system cannot."""
    return _renameat2(first, second, _EXCHANGE)


def _renameat2(first: Path, second: Path, flag: int) -> bool:
    """Call Linux's renameat2; False where it is missing or does not know the flag."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an older C library
        return False
    while call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), flag) != 0:
        number = ctypes.get_errno()
        if number == errno.EINTR:
            continue
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    return True
