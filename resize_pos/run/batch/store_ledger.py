"""The ledger of a batch in a store: one object per job, and one object that joins them.

The objects of the jobs are what counts (`store_claims`). The joined object saves reading them: it
repeats each entry with the version of its object. It is written on the condition that no other
machine has written it since; otherwise it is read again, merged and written again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote.outputs import require_target
from resize_pos.containers.remote.s3_store import CONNECTIONS
from resize_pos.containers.remote.small_objects import Stored, read_small, write_small_if
from resize_pos.containers.remote.store import Listing, ObjectInfo, store_of
from resize_pos.core.errors import OutputError, ResizePosError, UsageError
from resize_pos.core.json_edit import parse
from resize_pos.run.batch.ledger import PastJob, entry_document, entry_text, parse_entry
from resize_pos.run.batch.store_claims import FOLDER, JOBS, entry_name, is_claim
from resize_pos.run.batch.store_search import stored_stamp

if TYPE_CHECKING:
    from resize_pos.run.batch.work import Outcome

_JOINED = f"{FOLDER}/ledger.jsonl"
_TRIES = 8
_OFTEN = 200  # finished jobs between two writes of the joined object, at first


class StoreLedger:
    """What a store holds below an output folder, and the entries of its jobs."""

    def __init__(self, folder: RemotePath) -> None:
        if folder.scheme != "s3":
            raise UsageError(
                f"{folder}: a batch writes to a folder of this machine or to s3://.",
                hint="convert the checkpoints one by one: resize-pos URL -o URL",
            )
        if folder.key:
            require_target(folder)
        self._folder = folder
        self._objects: dict[str, ObjectInfo] = {}
        self._folders: dict[str, list[str]] = {}  # → the names of the objects below
        self._versions: dict[str, str] = {}  # of the entries, by target
        self._claimed: set[str] = set()
        self._new: dict[str, str] = {}  # lines that the joined object does not have
        self.entries: dict[str, PastJob] = {}
        self._list()
        self._read()

    def _list(self) -> None:
        try:
            for name, info in store_of(self._folder).walk(self._folder):
                self._objects[name] = info
                if name.startswith(f"{FOLDER}/"):
                    continue
                at = name.rfind("/")
                while at > 0:
                    self._folders.setdefault(name[:at], []).append(name)
                    at = name.rfind("/", 0, at)
        except FileNotFoundError:
            raise OutputError(
                f"{self._folder}: there is no such bucket.", "Create it, or check the spelling."
            ) from None

    def _read(self) -> None:
        """Read the joined object, and the entries that it does not have."""
        joined, _ = self._joined() if _JOINED in self._objects else ({}, None)
        names = {entry_name(target): target for target in joined}
        unread = []
        for name, info in self._objects.items():
            if not name.startswith(f"{FOLDER}/{JOBS}/"):
                continue
            target = names.get(name.removeprefix(f"{FOLDER}/"))
            line = None if target is None else joined[target]
            if target is not None and line is not None and line[1] == info.identity:
                self.entries[target], self._versions[target] = line
            else:
                unread.append(name)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for stored in pool.map(lambda name: read_small(self._folder / name), unread):
                if stored is not None:
                    self._add(stored)

    def _add(self, stored: Stored) -> None:
        entry = parse_entry(stored.data.decode("utf-8", "replace"))
        if entry is None or not entry.order:
            return
        self.entries[entry.target] = entry
        self._versions[entry.target] = stored.etag
        if is_claim(stored.data):
            self._claimed.add(entry.target)
        else:
            self._new[entry.target] = _line(entry, stored.etag)

    def _joined(self) -> tuple[dict[str, tuple[PastJob, str]], str | None]:
        """Read the joined object: entries with the versions of their objects, and its version."""
        stored = read_small(self._folder / _JOINED)
        if stored is None:
            return {}, None
        found: dict[str, tuple[PastJob, str]] = {}
        for line in stored.data.decode("utf-8", "replace").splitlines():
            entry = parse_entry(line)
            if entry is not None:
                found[entry.target] = entry, _version(line)
        return found, stored.etag

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the joined object; without it, the next run reads the entries one by one."""
        with contextlib.suppress(ResizePosError):
            self._save()

    def exists(self, target: Path) -> bool:
        """Return whether there was an object or a folder at a target."""
        name = self._name(target)
        return name in self._objects or name in self._folders

    def stamp(self, target: Path) -> str:
        """Return sizes and ETags of a target."""
        name = self._name(target)
        return stored_stamp(self._objects.get(name), self._below(name))

    def _below(self, name: str) -> Iterator[tuple[str, ObjectInfo]]:
        for below in self._folders.get(name, ()):
            yield below[len(name) + 1 :], self._objects[below]

    def listings(self) -> dict[RemotePath, Listing]:
        """Return what is in every folder of the output, also in those that are empty so far."""
        found = {self._folder: Listing((), {})}
        for name, info in self._objects.items():
            folder, _, last = name.rpartition("/")
            path = self._folder / folder if folder else self._folder
            found.setdefault(path, Listing((), {})).files[last] = info
        return found

    def version(self, target: str) -> tuple[str | None, bool]:
        """Return the version of a job's entry (None: it has none), and whether it is a claim."""
        return self._versions.get(target), target in self._claimed

    def note(self, outcome: Outcome) -> None:
        """Remember the entry that a worker has written."""
        if outcome.entry is None or not outcome.version:
            return
        target = outcome.entry.target
        self.entries[target] = outcome.entry
        self._new[target] = _line(outcome.entry, outcome.version)
        if len(self._new) >= max(_OFTEN, len(self.entries) // 2):
            with contextlib.suppress(ResizePosError):
                self._save()

    def _save(self) -> None:
        """Add the new lines to the joined object, whatever other machines add meanwhile."""
        for _ in range(_TRIES if self._new else 0):
            joined, version = self._joined()
            lines = {target: _line(*line) for target, line in joined.items()} | self._new
            text = "".join(f"{line}\n" for _, line in sorted(lines.items()))
            data = text.encode("utf-8", "backslashreplace")
            if write_small_if(self._folder / _JOINED, data, version) is not None:
                self._new = {}
                return

    def _name(self, target: Path) -> str:
        return "/".join(target.parts[len(self._folder.parts) :])


def _line(entry: PastJob, version: str) -> str:
    document: dict[str, Any] = entry_document(entry)
    return entry_text(document | {"version": version})


def _version(line: str) -> str:
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        return str(parse(line).get("version"))
    return ""
