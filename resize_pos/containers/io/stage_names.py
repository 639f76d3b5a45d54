"""Names of what is being written: who writes it, how far it is, and whether it was abandoned."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

PART_SUFFIX = ".resize-pos-part"

_LONGEST_STEM = 200  # bytes; with dot, writer, random part and suffix it stays within 255

# .NAME.PLACE-PROCESS-START-RANDOM: the writer is known by its name, so that nobody has to hold a
# lock, which not every network file system has.
_WRITER = re.compile(
    rf"\.([0-9a-f]{{8}})-([0-9a-f]+)-([0-9a-f]+)-[0-9a-f]{{8}}{re.escape(PART_SUFFIX)}$"
)

# A writer on another machine cannot be asked whether it lives. One that moves bytes touches its
# stage every few seconds.
ABANDONED_AFTER = 3600.0

# Zombie and dead: such a process has a number until somebody asks how it ended, but writes no more.
_ENDED = frozenset("ZXx")


def stage_path(target: Path) -> Path:
    """Give a fresh hidden name beside `target` that tells who writes there."""
    process = os.getpid()
    writer = f"{_place()}-{process:x}-{_started(process) or 0:x}"
    while True:
        stage = target.with_name(f"{_beginning(target)}{writer}-{os.urandom(4).hex()}{PART_SUFFIX}")
        if not os.path.lexists(stage):
            return stage


def staged_bytes(target: Path) -> int:
    """Tell how many bytes of a target have been written so far, by whomever."""
    beginning = _beginning(target)
    total = 0
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and entry.name.endswith(PART_SUFFIX):
                total += _size(Path(entry.path))
    return total


def remove_abandoned(folders: Iterable[Path]) -> list[Path]:
    """Remove the stages whose writer is gone; those of a living process stay."""
    removed = []
    for folder in folders:
        stages: list[Path] = []
        with contextlib.suppress(OSError):
            stages = sorted(path for path in folder.iterdir() if path.name.endswith(PART_SUFFIX))
        for stage in stages:
            if stage.name.startswith(".") and is_abandoned(stage):
                remove_stage(stage)
                removed.append(stage)
    return removed


def is_abandoned(stage: Path) -> bool:
    """Tell whether nobody will finish a stage.

    On this machine the process is asked; a stage from elsewhere is abandoned when nothing in it
    has changed for an hour.
    """
    writer = _WRITER.search(stage.name)
    if writer is not None and writer[1] == _place() and os.name == "posix":
        return not _lives(int(writer[2], 16), int(writer[3], 16))
    newest = _newest(stage)
    return newest is not None and time.time() - newest > ABANDONED_AFTER


def remove_stage(stage: Path) -> None:
    """Remove a file or a folder that was being written; what is gone is no error."""
    with contextlib.suppress(OSError):
        if stage.is_dir() and not stage.is_symlink():
            shutil.rmtree(stage, ignore_errors=True)
        else:
            stage.unlink(missing_ok=True)


def _beginning(target: Path) -> str:
    stem = os.fsencode(target.name)[:_LONGEST_STEM].decode("utf-8", "ignore")
    return f".{stem}."


@functools.cache
def _place() -> str:
    """Name the machine, and where processes are numbered apart, that numbering."""
    # Imported by whoever writes; a look at a checkpoint has no use for them.
    import hashlib
    import platform

    try:
        numbering = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        numbering = ""
    return hashlib.sha256(f"{platform.node()}\0{numbering}".encode()).hexdigest()[:8]


def _started(process: int) -> int | None:
    """Give a process's start in ticks since boot: its number alone may have been used before."""
    return _start(_status(process))


def _lives(process: int, started: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OverflowError:  # not a number that a process can have
        return False
    except OSError:  # it belongs to somebody else
        pass
    status = _status(process)
    if _ENDED.intersection(status[:1]):
        return False
    now = _start(status)
    return now is None or not started or now == started


def _status(process: int) -> list[str]:
    """Give what the system says of a process, from its state on; nothing where it does not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start(status: list[str]) -> int | None:
    try:
        return int(status[19])
    except (ValueError, IndexError):
        return None


def _files(stage: Path) -> Iterable[Path]:
    if not stage.is_dir() or stage.is_symlink():
        return [stage]
    return [Path(folder, name) for folder, _, names in os.walk(stage) for name in names]


def _size(stage: Path) -> int:
    total = 0
    for path in _files(stage):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def _newest(stage: Path) -> float | None:
    times = []
    for path in (stage, *_files(stage)):
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max(times, default=None)
