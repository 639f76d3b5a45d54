"""What earlier runs did, kept in the output folder: begun before a job starts, done when it ended.

The converted files carry their own record of request, version and source tables. The ledger adds
what must not be in them, or they would differ from run to run: sizes and times of files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from resize_pos.containers.io.atomic_output import output_error
from resize_pos.core.errors import OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse

NAME = ".resize-pos-batch.jsonl"

# A lone file is read in the light of the configs beside it.
_BESIDE = ("config.json", "open_clip_config.json")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One job of an earlier run."""

    target: str  # relative to the output folder
    order: Mapping[str, Any]  # what was asked for, in full
    done: bool
    source: str = ""
    source_stamp: str = ""
    target_stamp: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)  # what a later summary repeats


def stamp(path: Path, *, beside: bool = False) -> str:
    """Tell a file or folder from what it was before, by sizes and times; empty if it is missing."""
    try:
        if not path.is_dir():
            parts = [_stat(path)]
            if beside:
                parts += [_stat(path.with_name(name), missing="-") for name in _BESIDE]
            return " ".join(parts)
        lines = []
        for folder, _, names in os.walk(path):
            for name in names:
                file = Path(folder, name)
                lines.append(f"{file.relative_to(path).as_posix()} {_stat(file)}")
    except OSError:
        return ""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _stat(path: Path, missing: str | None = None) -> str:
    try:
        status = path.stat()
    except FileNotFoundError:
        if missing is None:
            raise
        return missing
    return f"{status.st_size}:{status.st_mtime_ns}"


class Ledger:
    """The entries of an output folder; append-only, so that a kill loses at most the last line."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self.entries: dict[str, LedgerEntry] = {}
        text = ""
        with contextlib.suppress(OSError):
            text = self._path.read_text(encoding="utf-8", errors="replace")
        self._torn = bool(text) and not text.endswith("\n")  # cut off by a kill
        for line in text.splitlines():
            entry = _entry(line)
            if entry is not None and entry.order:
                self.entries[entry.target] = entry
            elif entry is not None:
                self.entries.pop(entry.target, None)

    def __enter__(self) -> Self:
        """Open for writing; refuse when another run writes to the same folder."""
        try:
            self._file = self._path.open("a+", encoding="utf-8")
            _lock(self._file, self._path.parent)
            if self._torn:
                self._file.write("\n")
        except BaseException as error:
            if self._file is not None:
                self._file.close()
            if isinstance(error, OSError):
                raise output_error(self._path, error) from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the folder go."""
        if self._file is not None:
            self._file.close()

    def add(self, entry: LedgerEntry) -> None:
        """Note an entry; it replaces the target's earlier one."""
        self.entries[entry.target] = entry
        self._write(entry)

    def forget(self, target: str) -> None:
        """Take back what was begun: nothing came of it."""
        self.entries.pop(target, None)
        self._write(LedgerEntry(target, {}, done=False))

    def _write(self, entry: LedgerEntry) -> None:
        assert self._file is not None
        self._file.write(json.dumps(asdict(entry), separators=(",", ":")) + "\n")
        self._file.flush()


_TYPES: Mapping[str, type] = {
    "target": str,
    "order": dict,
    "done": bool,
    "source": str,
    "source_stamp": str,
    "target_stamp": str,
    "outcome": dict,
}
_OUTCOME_TYPES: Mapping[str, type] = {"verdict": str, "checks": list, "sha256": str}


def _entry(line: str) -> LedgerEntry | None:
    """Read one line; None if it is no entry: cut off by a kill, or edited by somebody."""
    try:
        found = parse(line)
        entry = LedgerEntry(**found)
    except (ValueError, TypeError):
        return None
    if not all(isinstance(getattr(entry, name), kind) for name, kind in _TYPES.items()):
        return None
    if not isinstance(entry.order.get("request", {}), dict):
        return None
    for name, kind in _OUTCOME_TYPES.items():
        if not isinstance(entry.outcome.get(name), kind | None):
            return None
    checks = entry.outcome.get("checks") or []
    return entry if all(map(_is_check, checks)) else None


def _is_check(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str) for name in ("level", "detail")
    )


def _lock(file: TextIO, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"{folder}: another batch is writing there.",
            "Wait until it has ended, or name another folder with --output-dir.",
        ) from None
    except OSError:  # a file system without locks
        return
