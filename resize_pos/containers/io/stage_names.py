"""Names of unfinished outputs. A name identifies its writer, so abandoned ones can be removed."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from resize_pos.core.lazy_regex import lazy_regex

PART_SUFFIX = ".resize-pos-part"  # a new output that is being written
OLD_SUFFIX = ".resize-pos-old"  # a folder that was moved aside and is about to be replaced

_LONGEST_STEM = 200  # bytes; with dot, writer, random part and suffix it stays within 255

# .NAME.PLACE-PROCESS-START-RANDOM: the name identifies the writer. So no file lock is needed, which
# some network file systems do not support.
_WRITER = lazy_regex(
    r"\.(?P<target>.+)\.(?P<place>[0-9a-f]{8})-(?P<process>[0-9a-f]+)-(?P<start>[0-9a-f]+)"
    rf"-[0-9a-f]{{8}}(?:{re.escape(PART_SUFFIX)}|{re.escape(OLD_SUFFIX)})",
    re.DOTALL,
)

# We cannot ask whether a process on another machine is running. A running one changes its stage
# every few seconds.
ABANDONED_AFTER = 3600.0

# Zombie and dead: such a process keeps its pid until its parent reads its exit status, but it no
# longer writes.
_ENDED = frozenset("ZXx")

# A batch writes thousands of outputs into one folder. Listing it for each would be quadratic.
_SWEEP_AGAIN_AFTER = 60.0
_swept: dict[str, float] = {}


def stage_path(target: Path, suffix: str = PART_SUFFIX) -> Path:
    """Return a fresh hidden name beside `target` that identifies this process as its writer."""
    writer = this_writer()
    while True:
        stage = target.with_name(f"{_beginning(target)}{writer}-{os.urandom(4).hex()}{suffix}")
        if not os.path.lexists(stage):
            return stage


def this_writer() -> str:
    """Return a word that identifies this process: the machine and its boot, pid, start time."""
    process = os.getpid()
    return f"{_place()}-{process:x}-{_started(process) or 0:x}"


def writer_lives(writer: str) -> bool:
    """Return whether the process that `this_writer` identified may still run."""
    place, process, start = writer.split("-")
    if place != _place() or os.name != "posix":
        return True  # on another machine, or before a reboot: we cannot ask
    return _lives(int(process, 16), int(start, 16))


def staged_bytes(target: Path) -> int:
    """Count how many bytes of a target have been written so far, by any process."""
    beginning = _beginning(target)
    total = 0
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and entry.name.endswith(PART_SUFFIX):
                total += _size(Path(entry.path))
    return total


def sweep(folder: Path) -> None:
    """Remove what dead processes left in a folder, unless this process just did so."""
    key, now = str(folder.absolute()), time.monotonic()
    if now - _swept.get(key, float("-inf")) > _SWEEP_AGAIN_AFTER:
        _swept[key] = now
        remove_abandoned([folder])


def remove_abandoned(folders: Iterable[Path]) -> list[Path]:
    """Remove the stages whose writer is dead; those of a living process stay.

    A folder that was moved aside is moved back if the new one never took its place.
    """
    removed = []
    for folder in folders:
        for stage in _stages(folder):
            if not is_abandoned(stage):
                continue
            if stage.name.endswith(OLD_SUFFIX):
                target = _target(stage)
                if target is None:
                    continue
                if not os.path.lexists(target):
                    with contextlib.suppress(OSError):
                        stage.rename(target)
                    continue
            remove_stage(stage)
            removed.append(stage)
    return removed


def is_abandoned(stage: Path) -> bool:
    """Return whether the writer of a stage is gone.

    If it was written on this machine since its last boot, the writer is looked up by pid. Any other
    stage is abandoned if nothing in it has changed for an hour.
    """
    writer = _WRITER.fullmatch(stage.name)
    if writer is not None and writer["place"] == _place() and os.name == "posix":
        return not _lives(int(writer["process"], 16), int(writer["start"], 16))
    newest = _newest(stage)
    return newest is not None and time.time() - newest > ABANDONED_AFTER


def remove_stage(stage: Path) -> None:
    """Remove a file or folder that was being written, if it still exists."""
    with contextlib.suppress(OSError):
        if stage.is_dir() and not stage.is_symlink():
            import shutil  # imports three compression libraries

            shutil.rmtree(stage, ignore_errors=True)
        else:
            stage.unlink(missing_ok=True)


def _stages(folder: Path) -> list[Path]:
    """List the stages in a folder; a folder that cannot be read has none."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  a large folder is read ten times as fast
    except OSError:
        return []
    ends = (PART_SUFFIX, OLD_SUFFIX)
    return sorted(folder / name for name in names if name.startswith(".") and name.endswith(ends))


def _target(stage: Path) -> Path | None:
    """Return the target of a stage; None if the name was shortened or is not one of ours."""
    writer = _WRITER.fullmatch(stage.name)
    if writer is None or len(os.fsencode(writer["target"])) >= _LONGEST_STEM - 3:
        return None
    return stage.with_name(writer["target"])


def _beginning(target: Path) -> str:
    stem = os.fsencode(target.name)[:_LONGEST_STEM].decode("utf-8", "ignore")
    return f".{stem}."


@functools.cache
def _place() -> str:
    """Identify where a process number is valid: the machine, its boot, and its pid namespace.

    Two machines that share a disk may have the same host name and the same number of the first pid
    namespace. The boot id differs.
    """
    # Only a command that writes imports these.
    import hashlib
    import platform

    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_bytes().hex())
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:8]


def _started(process: int) -> int | None:
    """Return when a process started, in ticks since boot, because pids are reused."""
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
    """Return the fields of /proc/PID/stat from the state on; empty if there is no /proc."""
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
