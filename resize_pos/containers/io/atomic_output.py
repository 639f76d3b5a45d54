"""The target appears whole or not at all: written beside its place, then renamed into it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from resize_pos.containers.io.stage_names import remove_stage, stage_path
from resize_pos.core.errors import OutputError

OLD_SUFFIX = ".resize-pos-old"

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".distcp")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_REASONS: dict[int, tuple[str, str | None]] = {
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
}


def output_error(path: Path, error: OSError) -> OutputError:
    """Put into words why the system refused to write `path`."""
    words = error.strerror or str(error) or type(error).__name__
    reason, hint = _REASONS.get(error.errno or 0, (words, None))
    return OutputError(f"{path}: cannot be written: {reason}.", hint)


def require_writable(folder: Path) -> None:
    """Refuse a folder that is missing, is no folder, or in which no file can be made."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        raise OutputError(
            f"{folder}: no such folder.", f"Create it first: mkdir -p {folder}"
        ) from None
    except OSError as error:
        raise output_error(folder, error) from error
    if not stat.S_ISDIR(mode):
        raise OutputError(f"{folder}: not a folder.", "Name a file inside a folder with -o.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"{folder}: the folder is not writable.", "Choose a folder you may write to with -o."
        )


def require_absent(target: Path, *, force: bool, folder: bool = False) -> bool:
    """Refuse a target that exists, unless `force`; tell whether one would be replaced.

    A file never replaces a folder, nor a folder a file; a device is refused in any case.
    """
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise output_error(target, error) from error
    if stat.S_ISDIR(mode) and not folder:
        raise OutputError(f"{target}: is a folder.", "Name a file inside it with -o.")
    if folder and not stat.S_ISDIR(mode):
        raise OutputError(
            f"{target}: is not a folder, but the output is one.", "Name another folder with -o."
        )
    if not folder and not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OutputError(f"{target}: is not a regular file.", "Name another file with -o.")
    if force and folder:
        require_replaceable(target)
    if not force:
        raise OutputError(
            f"{target}: already exists.", "Pass --force to replace it, or name another with -o."
        )
    return True


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse to start what the disk cannot hold."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        raise output_error(folder, error) from error
    # A file system without a size limit reports a total of 0.
    if usage.total and usage.free < needed_bytes:
        raise OutputError(
            f"{folder}: {_human(needed_bytes)} are needed but only {_human(usage.free)} are free.",
            "Free some space, or choose another disk with -o.",
        )


@contextlib.contextmanager
def staged(target: Path, *, force: bool, folder: bool = False) -> Iterator[Path]:
    """Yield a fresh path beside `target`; rename it there on success, remove it on any failure.

    An existing target is refused unless `force`; then it is replaced in one step, and only after
    the new bytes have reached the disk. A folder is replaced by a folder only, a device never.
    """
    require_writable(target.parent)
    require_absent(target, force=force, folder=folder)
    stage = stage_path(target)
    try:
        yield stage
        replaces = require_absent(target, force=force, folder=folder)
        if replaces:
            _sync_tree(stage)
        if replaces and folder:
            replace_folder(stage, target)
        else:
            # Where the system has a rename that refuses to overwrite (Windows), it is the one used.
            (stage.replace if force else stage.rename)(target)
    except BaseException as error:
        remove_stage(stage)
        if isinstance(error, OutputError) and stage.name in error.message:
            # Nobody can look up a name that is gone; the target is what was asked for.
            message = error.message.replace(stage.name, target.name)
            raise OutputError(message, error.hint) from error
        if isinstance(error, OSError) and error.filename in (None, str(stage), stage):
            raise output_error(target, error) from error
        raise
    if replaces:
        # The rename is done: a file system that cannot sync a folder is no reason to fail.
        with contextlib.suppress(OSError):
            _sync(target.parent)


def require_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that does not look like a model: it would be deleted."""
    here = Path.cwd()
    real = folder.resolve()
    if os.path.ismount(real) or real == here or real in here.parents or real == Path.home():
        raise OutputError(
            f"{folder}: is in use as a folder of its own and cannot be replaced.",
            "Name another folder with -o.",
        )
    names = [entry.name for entry in folder.iterdir()]
    if names and not any(name.endswith(_WEIGHTS) for name in names):
        raise OutputError(
            f"{folder}: holds no weights; --force replaces model folders only.",
            "Name another folder with -o, or remove this one yourself.",
        )


def replace_folder(stage: Path, target: Path) -> None:
    """Swap `stage` into the place of `target` and delete what was there.

    Linux exchanges the two names in one step. Elsewhere the old folder is moved aside first, and
    back again if the new one cannot take its place.
    """
    if _exchanged(stage, target):
        shutil.rmtree(stage, ignore_errors=True)
        return
    aside = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}{OLD_SUFFIX}")
    target.rename(aside)
    try:
        stage.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(stage: Path, target: Path) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # only a folder that is replaced pays for it

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an older C library
        return False
    code = renameat2(
        _AT_FDCWD, os.fsencode(stage), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE
    )
    return bool(code == 0)  # a file system that cannot exchange still renames


def _sync_tree(stage: Path) -> None:
    if stage.is_file():
        _sync(stage)
    for folder, _, files in os.walk(stage):
        for name in files:
            path = Path(folder, name)
            # What is linked has been on the disk before.
            if path.is_file() and path.lstat().st_nlink == 1:
                _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _human(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"
