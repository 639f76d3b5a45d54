"""Renames that the standard library lacks: one that never replaces, and one that exchanges.

`os.rename` replaces silently on POSIX. A check before the rename is a race: another program can
create the target in between.
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

    Linux has a system call for it. Elsewhere we make a hard link, which fails if the name is taken,
    and remove the old name. Without hard links (FAT, some network disks) we fall back to a check
    just before the rename; then a target that another program creates in between is replaced. For
    a folder, this fallback can replace only an empty folder.
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
            # The target is in place. If the stage cannot be removed, the next run removes it.
            with contextlib.suppress(OSError):
                stage.unlink()
            return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    try:
        stage.rename(target)  # on Windows this refuses to replace
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # the error if a non-empty folder has that name
            raise FileExistsError(*error.args) from error
        raise


def exchange(first: Path, second: Path) -> bool:
    """Swap two names atomically; return False if the system does not support it."""
    return _renameat2(first, second, _EXCHANGE)


def _renameat2(first: Path, second: Path, flag: int) -> bool:
    """Call Linux's renameat2; return False if it or the flag is not supported."""
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
