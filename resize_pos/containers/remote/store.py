"""What every store can do: describe an object, read a range of it, list a folder.

An object is read on the condition that it is still the one that was first seen. Each kind of store
is a module of its own, which is imported when a URL of its scheme is used.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from resize_pos.containers.remote.traffic import count
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

# A request that failed for a reason that may pass is repeated so often, with growing pauses.
TRIES = 6
_LEAST_PROGRESS = 1 << 16  # bytes between two failures, for the second to count as the first one
_FIRST_PAUSE = 0.1  # seconds
_LONGEST_PAUSE = 8.0

_STORES = {
    "s3": "s3_store:S3Store",
    "http": "http_store:HttpStore",
    "https": "http_store:HttpStore",
    "hf": "hub_store:HubStore",
}
_SIZE = lazy_regex("[0-9]{1,18}")
_CONTENT_RANGE = lazy_regex("bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|[*])")
_OTHERS = "fsspec_store:FsspecStore"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The size of an object, and what tells this version of it from others."""

    size: int
    identity: str  # ETag, version or checksum; the time of the last change if there is none


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies one level below a name."""

    folders: tuple[str, ...]
    files: dict[str, ObjectInfo]
    complete_to: str | None = None  # names after this one were not listed; None: all were

    def covers(self, name: str) -> bool:
        """Return whether the listing says if there is an object with this name."""
        return self.complete_to is None or name <= self.complete_to


class Denied(ContainerError):
    """The store does not let us see an object or a listing; it may be there or not."""


class TryAgain(Exception):
    """A connection broke or a server was busy; the same request may succeed later."""

    weight = 0  # as how many failures it counts, even if bytes came; 0: as one if few came


class Store(ABC):
    """One kind of store, with the connection that this process has to it."""

    can_list = True

    @abstractmethod
    def info(self, path: RemotePath) -> ObjectInfo | None:
        """Describe an object; None: there is none."""

    def first(self, path: RemotePath, length: int) -> tuple[ObjectInfo, bytes] | None:
        """Describe an object and read its first bytes; overridden where one request does both."""
        info = self.info(path)
        if info is None:
            return None
        return info, self.read(path, info, 0, min(length, info.size))

    @abstractmethod
    def open_range(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block; raise `TryAgain` if it may succeed later."""

    @abstractmethod
    def page(self, path: RemotePath) -> Listing:
        """List one level below a name; of a very large folder only its beginning."""

    @abstractmethod
    def walk(self, path: RemotePath) -> Iterator[tuple[str, ObjectInfo]]:
        """List every object below a name, by its relative name."""

    def close(self) -> None:  # noqa: B027
        """Close the connections."""

    def blocks(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block; continue where it stopped if the connection breaks."""
        done, failures, failed_at = 0, 0, 0
        while done < length:
            reason, weight = "the connection was closed early", 0
            try:
                for block in self.open_range(path, info, offset + done, length - done):
                    count(received=len(block))
                    done += len(block)
                    yield block
            except TryAgain as error:
                reason, weight = str(error), error.weight
            if done < length:
                moved = done - failed_at >= _LEAST_PROGRESS
                failures = failures + weight if weight else 1 if moved else failures + 1
                failed_at = done
                if failures >= TRIES:
                    raise ContainerError(
                        f"{path}: cannot be read at byte {offset + done}: {reason}.",
                        "Try again later.",
                    )
                pause(failures)

    def read(self, path: RemotePath, info: ObjectInfo, offset: int, length: int) -> bytes:
        """Read a range."""
        return b"".join(self.blocks(path, info, offset, length))


def pause(failures: int) -> None:
    """Wait before a request is repeated: longer each time, and never all clients at once."""
    longest = min(_FIRST_PAUSE * 2**failures, _LONGEST_PAUSE)
    time.sleep(random.uniform(longest / 2, longest))


def store_of(path: RemotePath) -> Store:
    """Return this process's connection to the store of a URL."""
    return _store(path.scheme)


def disconnect() -> None:
    """Close all connections; the next request uses the environment as it is then."""
    while _connected:
        _connected.popitem()[1].close()


_connected: dict[str, Store] = {}


def _store(scheme: str) -> Store:
    if scheme not in _connected:
        module, _, name = _STORES.get(scheme, _OTHERS).partition(":")
        made: Store = getattr(import_module(f"{__package__}.{module}"), name)(scheme)
        _connected.setdefault(scheme, made)
    return _connected[scheme]


def changed(path: RemotePath) -> ContainerError:
    """Say that an object is not the one that was first seen."""
    return ContainerError(
        f"{path}: changed since it was opened.",
        "Another program has replaced it; try again when it is complete.",
    )


def stated_size(text: str) -> int | None:
    """Read a number of bytes in a header of an answer; None: it is none."""
    return int(text) if _SIZE.fullmatch(text) else None


def require_range(path: RemotePath, stated: str, offset: int, size: int) -> None:
    """Refuse an answer with other bytes than those asked for; `stated` is its Content-Range."""
    found = _CONTENT_RANGE.fullmatch(stated)
    if found is None:
        raise ContainerError(
            f"{path}: the server does not say which bytes it sent.", "Download the file first."
        )
    if found[2] != "*" and int(found[2]) != size:
        raise changed(path)
    if int(found[1]) != offset:
        raise ContainerError(
            f"{path}: the server was asked for the bytes from {offset} on, and sent those from "
            f"{found[1]} on.",
            "Download the file first.",
        )


def needs(path: RemotePath, package: str, extra: str) -> ContainerError:
    """Say which package a URL needs."""
    return ContainerError(
        f"{path}: {path.scheme}:// needs the package {package}.",
        f'pip install "resize-pos[{extra}]"',
    )
