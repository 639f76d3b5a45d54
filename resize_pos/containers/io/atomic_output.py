"""Atomic outputs: a target is written beside its place, then renamed into it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from resize_pos.containers.detect import DISTRIBUTED_PIECE, WEIGHT_SUFFIXES
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.stage_names import OLD_SUFFIX, remove_stage, stage_path, sweep
from resize_pos.core.errors import OutputError
from resize_pos.core.printable import human_size
from resize_pos.core.system_errors import cause

_WEIGHTS = (*WEIGHT_SUFFIXES, DISTRIBUTED_PIECE)

_placed: list[Path] = []


def placed() -> tuple[Path, ...]:
    """Return the targets that this process has put in place, in order.

    Used in the message after an interrupt: a target that was renamed into place stays there.
    """
    return tuple(_placed)


def output_error(path: Path, error: OSError) -> OutputError:
    """Return an error that says why the system refused to write `path`."""
    reason, hint = cause(error)
    return OutputError(f"{path}: cannot be written: {reason}.", hint)


def require_writable(folder: Path) -> None:
    """Refuse a folder that is missing, is not a folder, or is not writable."""
    if isinstance(folder, RemotePath):  # the store says so when it is written to
        return
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
    if isinstance(target, RemotePath):
        from resize_pos.containers.remote.outputs import require_free

        return require_free(target, force=force, folder=folder) is not None
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
    if not folder and (_is_stream(target, mode) or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))):
        raise OutputError(f"{target}: is not a regular file.", "Name another file with -o.")
    if force and folder:
        require_replaceable(target)
    if not force:
        raise OutputError(
            f"{target}: already exists.", "Pass --force to replace it, or name another with -o."
        )
    return True


def _is_stream(target: Path, mode: int) -> bool:
    """Whether a link leads to a device, a pipe, or a stream of this process (/dev/stdout)."""
    if not stat.S_ISLNK(mode):
        return False
    with contextlib.suppress(OSError):
        leads_to = target.stat().st_mode
        if not (stat.S_ISREG(leads_to) or stat.S_ISDIR(leads_to)):
            return True
        return str(target.readlink()).startswith("/proc/")
    return False


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise if the disk does not have enough free space."""
    if isinstance(folder, RemotePath):  # stores have no limit that we could ask for
        return
    import shutil  # imports three compression libraries, which a dry run does not need

    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        raise output_error(folder, error) from error
    # A file system without a size limit reports a total of 0.
    if usage.total and usage.free < needed_bytes:
        raise OutputError(
            f"{folder}: {human_size(needed_bytes)} are needed but only {human_size(usage.free)} "
            "are free.",
            "Free some space, or choose another disk with -o.",
        )


@contextlib.contextmanager
def staged(
    target: Path, *, force: bool, folder: bool = False, durable: bool = False
) -> Iterator[Path]:
    """Yield a fresh path beside `target`; rename it there on success, remove it on any failure.

    An existing target is refused unless `force`. With `force` it is replaced atomically, after the
    new bytes are synced to the disk. Only a folder replaces a folder; a device is never replaced.
    A new target is synced before the rename only with `durable`.
    """
    if isinstance(target, RemotePath):
        from resize_pos.containers.remote.outputs import staged_remote

        with staged_remote(target, force=force, folder=folder) as upload:
            yield upload
        _placed.append(target)
        return
    require_writable(target.parent)
    sweep(target.parent)
    require_absent(target, force=force, folder=folder)
    stage = stage_path(target)
    written: tuple[int, int] | None = None
    try:
        yield stage
        replaces = require_absent(target, force=force, folder=folder)
        if replaces or durable:
            _sync_tree(stage, linked=durable)
        written = _identity(stage)
        _put_in_place(stage, target, replaces=replaces, folder=folder)
    except BaseException as error:
        remove_stage(stage)
        if written is not None and _identity(target) == written:
            _placed.append(target)  # interrupted just after the rename
        if isinstance(error, OutputError) and stage.name in error.message:
            # The stage is removed; the message names the target, which the user knows.
            message = error.message.replace(stage.name, target.name)
            raise OutputError(message, error.hint) from error
        if isinstance(error, OSError) and _concerns(error, stage):
            raise output_error(target, error) from error
        raise
    _placed.append(target)
    if replaces or durable:
        _sync_entry(target, required=durable)


def _put_in_place(stage: Path, target: Path, *, replaces: bool, folder: bool) -> None:
    if replaces and folder:
        replace_folder(stage, target)
    elif replaces:
        stage.replace(target)
    else:
        from resize_pos.containers.io.rename import rename_new  # imports ctypes

        try:
            rename_new(stage, target)
        except FileExistsError:
            raise OutputError(
                f"{target}: was created by another program in the meantime.",
                "Pass --force to replace it, or name another with -o.",
            ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _concerns(error: OSError, stage: Path) -> bool:
    """Return whether an error is about the stage or a file in it, or names no file."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return True
    path = Path(os.fsdecode(error.filename))
    return path == stage or stage in path.parents


def require_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that does not look like a model: it would be deleted."""
    try:
        here, real = Path.cwd(), folder.resolve()
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise output_error(folder, error) from error
    if os.path.ismount(real) or real == here or real in here.parents or real == Path.home():
        raise OutputError(
            f"{folder}: is in use as a folder of its own and cannot be replaced.",
            "Name another folder with -o.",
        )
    if names and not any(name.endswith(_WEIGHTS) for name in names):
        raise OutputError(
            f"{folder}: holds no weights; --force replaces model folders only.",
            "Name another folder with -o, or remove this one yourself.",
        )


def replace_folder(stage: Path, target: Path) -> None:
    """Replace the folder `target` by `stage` and delete the old content.

    Linux exchanges the two names atomically. Elsewhere the old folder is moved aside first, and
    moved back if the new one cannot be renamed. If the process dies between the two renames, the
    next run moves the old folder back.
    """
    import shutil

    from resize_pos.containers.io.rename import exchange  # imports ctypes

    if exchange(stage, target):
        shutil.rmtree(stage, ignore_errors=True)
        return
    aside = stage_path(target, OLD_SUFFIX)
    target.rename(aside)
    try:
        stage.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync_tree(stage: Path, *, linked: bool) -> None:
    """Have everything in a stage written to the disk; a hard link was on the disk before."""
    if not stage.is_dir():
        _sync(stage)
        return
    for folder, _, files in os.walk(stage, topdown=False):
        for name in files:
            path = Path(folder, name)
            if path.is_file() and (linked or path.lstat().st_nlink == 1):
                _sync(path)
        _sync_folder(Path(folder))


def _sync_entry(target: Path, *, required: bool) -> None:
    """Have the new name written to the disk; the target is in place already."""
    try:
        _sync_folder(target.parent)
    except OSError as error:
        if required:
            words, _ = cause(error)
            raise OutputError(
                f"{target}: is complete and in place, but its folder could not be synced: {words}."
            ) from error


def _sync_folder(folder: Path) -> None:
    try:
        _sync(folder)
    except OSError as error:
        # Windows cannot open a folder, and some file systems cannot sync one.
        if os.name == "posix" and error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
