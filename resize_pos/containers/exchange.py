"""Put a finished folder in the place of another one, in one step where the system has one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from resize_pos.errors import OutputError

OLD_SUFFIX = ".resize-pos-old"

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".distcp")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


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
