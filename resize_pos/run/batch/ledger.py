"""The record of earlier runs in the output folder: one entry when a job starts, one when it ends.

Converted files contain their own record of request, version and source tables. The ledger adds the
sizes and times of files. They must not be in the converted files, which would then differ from run
to run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from resize_pos.containers.io.atomic_output import output_error
from resize_pos.core.errors import OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.core.printable import finite
from resize_pos.quality.checks import Check, Level
from resize_pos.report.batch_result import Judgement
from resize_pos.report.json import checks_document
from resize_pos.run.batch.discover import BESIDE

NAME = ".resize-pos-batch.jsonl"


@dataclass(frozen=True, slots=True)
class PastJob:
    """One job of an earlier run."""

    target: str  # relative to the output folder
    order: Mapping[str, Any]  # the complete request
    done: bool
    source: str = ""
    source_stamp: str = ""
    target_stamp: str = ""
    judgement: Judgement = Judgement()  # repeated in a later summary


def stamp(path: Path, *, beside: bool = False) -> str:
    """Return sizes and times of a file or folder, to detect changes; empty if it is missing."""
    try:
        if not path.is_dir():
            parts = [_stat(path)]
            if beside:
                parts += [_stat(path.with_name(name), missing="-") for name in BESIDE]
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


def parse_entry(line: str) -> PastJob | None:
    """Parse one line; None if it is malformed, for example cut off when the process was killed."""
    try:
        found = parse(line)
        judged = found.get("outcome") or {}
        checks = tuple(
            Check(str(check["name"]), Level(check["level"]), str(check["detail"]))
            for check in judged.get("checks") or ()
        )
        sha256 = judged.get("sha256")
        words = [found["target"]]
        words += [found.get(name, "") for name in ("source", "source_stamp", "target_stamp")]
        order, done = found["order"], found["done"]
        if not (isinstance(order, dict) and isinstance(done, bool)):
            return None
        if not isinstance(order.get("request", {}), dict):
            return None
        if not all(isinstance(word, str) for word in (*words, sha256 or "")):
            return None
        judgement = Judgement(Level(judged.get("verdict") or "ok"), checks, sha256)
        target, source, source_stamp, target_stamp = words
        return PastJob(target, order, done, source, source_stamp, target_stamp, judgement)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def entry_document(entry: PastJob) -> dict[str, Any]:
    """Return an entry as plain data."""
    judged = entry.judgement
    document: dict[str, Any] = {
        "target": entry.target,
        "order": entry.order,
        "done": entry.done,
        "source": entry.source,
        "source_stamp": entry.source_stamp,
        "target_stamp": entry.target_stamp,
        "outcome": {
            "verdict": judged.verdict.value,
            "checks": checks_document(judged.checks),
            "sha256": judged.sha256,
        },
    }
    return document


def entry_text(document: dict[str, Any]) -> str:
    """Write an entry as one line."""
    return json.dumps(finite(document), separators=(",", ":"))


class AnyLedger(Protocol):
    """What is known of an output folder: its targets, and the jobs of earlier runs."""

    entries: dict[str, PastJob]

    def __enter__(self) -> Self:
        """Open for writing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""

    def exists(self, target: Path) -> bool:
        """Return whether there is anything at a target."""

    def stamp(self, target: Path) -> str:
        """Return what tells versions of a target apart."""

    def version(self, target: str) -> tuple[str | None, bool]:
        """Return the version of a job's entry in a store, and whether it is a claim."""


class Ledger:
    """The entries of an output folder. Append-only: a killed run loses at most the last line."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: TextIO | None = None
        self.entries: dict[str, PastJob] = {}
        text = ""
        with contextlib.suppress(OSError):
            if self._path.is_file():  # reading a pipe would block
                text = self._path.read_text(encoding="utf-8", errors="replace")
        self._torn = bool(text) and not text.endswith("\n")  # cut off when killed
        for line in text.splitlines():
            entry = parse_entry(line)
            if entry is not None and entry.order:
                self.entries[entry.target] = entry
            elif entry is not None:
                self.entries.pop(entry.target, None)

    def exists(self, target: Path) -> bool:
        """Return whether there is a file or folder at a target."""
        return os.path.lexists(target)

    def stamp(self, target: Path) -> str:
        """Return sizes and times of a target."""
        return stamp(target)

    def version(self, target: str) -> tuple[str | None, bool]:
        """Return that there is no entry in a store."""
        del target
        return None, False

    def __enter__(self) -> Self:
        """Open for writing; refuse if another run writes to the same folder."""
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
        """Close the file, which unlocks the folder."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as failure:
                if error is None:  # otherwise report the first failure
                    raise output_error(self._path, failure) from failure

    def add(self, entry: PastJob) -> None:
        """Add an entry; it replaces the target's earlier one."""
        self.entries[entry.target] = entry
        self._write(entry)

    def forget(self, target: str) -> None:
        """Remove the entry of a job that started but wrote nothing."""
        self.entries.pop(target, None)
        self._write(PastJob(target, {}, done=False))

    def _write(self, entry: PastJob) -> None:
        assert self._file is not None
        try:
            self._file.write(entry_text(entry_document(entry)) + "\n")
            self._file.flush()
        except OSError as error:
            raise output_error(self._path, error) from error


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
