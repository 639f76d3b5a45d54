"""One object per job beside the outputs in a store: a claim while it runs, its entry afterwards.

Every write states which version it replaces, so of two machines only one gets a claim. A claim is
renewed while its job runs. One that was not renewed for `LEASE` seconds, or whose process is known
to be gone, is taken over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resize_pos.containers.io.stage_names import this_writer, writer_lives
from resize_pos.containers.remote.small_objects import (
    delete_if,
    read_small,
    write_small_if,
)
from resize_pos.core.errors import OutputError, ResizePosError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.run.batch.ledger import PastJob, entry_document, entry_text, parse_entry

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

FOLDER = ".resize-pos-batch"
JOBS = "jobs"
LEASE = 120.0  # seconds by the store's clock
_RENEWED = LEASE / 4
_TRIES = 8

_held: set[str] = set()  # the claims of this process


def entry_name(key: str) -> str:
    """Return the name of a job's object below `FOLDER`; a key may be too long for a name."""
    return f"{JOBS}/{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:40]}.json"


def entry_path(output_dir: RemotePath, key: str) -> RemotePath:
    """Return where the claim and the entry of a job are."""
    path: RemotePath = output_dir / FOLDER / entry_name(key)
    return path


@dataclass(frozen=True, slots=True)
class Wish:
    """The job that a worker wants to claim."""

    path: RemotePath  # of its entry
    entry: PastJob  # not done
    batch: str  # a random word for this run of the batch
    fresh: bool  # nothing was at the target when the batch was planned
    known: str | None  # the version of the entry when the batch was planned; None: there was none
    claimed: bool  # that entry was a claim


class Claim:
    """A job that only this process may run."""

    def __init__(
        self, wish: Wish, etag: str, document: dict[str, Any], before: bytes | None, inherited: bool
    ) -> None:
        self.fresh = bool(document["claim"]["fresh"])
        self.began = float(document["claim"]["began"])
        self.inherited = inherited  # from a process that is gone
        self._path = wish.path
        self._document = document
        self._etag: str | None = etag
        self._before = before  # the entry that the claim has replaced
        self._lock = threading.Lock()
        self._own = str(document["claim"]["own"])
        _held.add(self._own)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the claim while the job runs."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(_RENEWED):
                with self._lock, contextlib.suppress(ResizePosError):
                    self._document["claim"]["renewed"] += 1
                    if self._etag is not None:
                        self._etag = write_small_if(self._path, _data(self._document), self._etag)

        thread = threading.Thread(target=renew, daemon=True, name="resize-pos-claim")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def finish(self, entry: PastJob) -> str:
        """Replace the claim by the entry of the finished job; return its version.

        If another process has taken the claim over, its entry stays; the result is the same.
        """
        _held.discard(self._own)
        data = _data(entry_document(entry))
        if self._etag is not None:
            written = write_small_if(self._path, data, self._etag)
            if written is not None:
                return written
        found = read_small(self._path)
        if found is None:
            return write_small_if(self._path, data, None) or ""
        return found.etag if found.data == data else ""

    def is_held(self) -> bool:
        """Return whether no other process has taken the claim over."""
        found = read_small(self._path)
        return found is not None and found.etag == self._etag

    def release(self) -> None:
        """Give the claim back: the job has failed. Never raises."""
        _held.discard(self._own)
        if self._etag is None:
            return
        with contextlib.suppress(Exception):
            if self._before is None:
                delete_if(self._path, self._etag)
            else:
                write_small_if(self._path, self._before, self._etag)


def take(wish: Wish) -> Claim | PastJob | None:
    """Claim a job. If another process has finished it, return its entry; None if one is at it."""
    own = os.urandom(8).hex()
    version, before = wish.known, None
    look = wish.claimed or wish.known is not None
    theirs: Mapping[str, Any] | None = None
    for _ in range(_TRIES):
        if look:
            found = read_small(wish.path)
            version = before = None
            if found is not None:
                version, before = found.etag, found.data
                document = _parsed(found.data)
                claim = document.get("claim")
                if isinstance(claim, dict):
                    if claim.get("own") == own:  # the answer to our request was lost
                        return Claim(wish, found.etag, document, None, theirs is not None)
                    if not _is_over(claim, found.age, wish.batch):
                        return None
                    theirs, before = claim, None
                elif found.etag != wish.known:
                    return _finished(wish, found.data)
        document = entry_document(wish.entry) | {"claim": _claim(wish, own, theirs)}
        etag = write_small_if(wish.path, _data(document), version)
        if etag is not None:
            return Claim(wish, etag, document, before, theirs is not None)
        look = True
    raise OutputError(f"{wish.path}: cannot be claimed: others write it all the time.")


def gone_claim(path: RemotePath) -> Claim | None:
    """Return the claim of a process that is gone, so that what it left can be removed."""
    found = read_small(path)
    document = {} if found is None else _parsed(found.data)
    claim = document.get("claim")
    entry = None if found is None else parse_entry(found.data.decode("utf-8", "replace"))
    if found is None or entry is None or not isinstance(claim, dict):
        return None
    if not _is_over(claim, found.age, batch=""):
        return None
    wish = Wish(path, entry, "", bool(claim.get("fresh")), None, claimed=True)
    document["claim"] = _claim(wish, str(claim.get("own")), claim)
    return Claim(wish, found.etag, document, None, inherited=True)


def is_claim(data: bytes) -> bool:
    """Return whether an object beside the outputs is a claim, not the entry of a finished job."""
    return isinstance(_parsed(data).get("claim"), dict)


def _claim(wish: Wish, own: str, theirs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Describe a claim; one that is taken over stays as old as it is."""
    began, fresh = time.time(), wish.fresh
    if theirs is not None:
        fresh = bool(theirs.get("fresh"))
        with contextlib.suppress(TypeError, ValueError, KeyError):
            began = min(began, float(theirs["began"]))
    return {
        "own": own,
        "batch": wish.batch,
        "writer": this_writer(),
        "began": round(began, 3),
        "fresh": fresh,
        "renewed": 0,
    }


def _is_over(claim: Mapping[str, Any], age: float, batch: str) -> bool:
    """Return whether a claim may be taken over."""
    if batch and claim.get("batch") == batch:  # this batch runs the job again: its worker was lost
        return True
    writer = str(claim.get("writer"))
    if writer == this_writer():  # a store that was in trouble kept it
        return claim.get("own") not in _held
    try:
        gone = not writer_lives(writer)
    except ValueError:
        gone = False
    return gone or age > LEASE


def _finished(wish: Wish, data: bytes) -> PastJob:
    entry = parse_entry(data.decode("utf-8", "replace"))
    wanted = wish.entry
    if entry is not None and entry.done:
        same = (entry.order, entry.source) == (wanted.order, wanted.source)
        if same and entry.source_stamp == wanted.source_stamp:
            return entry
    raise OutputError(
        f"{wanted.target}: another batch has just written it, for another request.",
        "Name another folder with --output-dir.",
    )


def _parsed(data: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        document = parse(data.decode("utf-8", "replace"))
        if isinstance(document, dict):
            return document
    return {}


def _data(document: dict[str, Any]) -> bytes:
    return f"{entry_text(document)}\n".encode("utf-8", "backslashreplace")
