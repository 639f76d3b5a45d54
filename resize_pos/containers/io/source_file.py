"""The files that a checkpoint is read from.

Every format reads through `SourceFile`, and every copy is made from one: size, identity, and bytes
from an offset on. This is the only place that opens a local source, and the only place that checks
that it did not change meanwhile. `containers/remote/` has the same for objects in a store.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from resize_pos.containers.io.remote_path import SCHEMES, RemotePath
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

TRUNCATED = "The file looks truncated; download or copy it again."

_BLOCK = 1 << 20

# Non-blocking: the run must not hang if the file was replaced by a pipe after the first check.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A regular file, and its identity (inode, time, size) when it was first seen."""

    path: Path
    size: int
    identity: tuple[int | str, ...]  # inode, time of the last change in nanoseconds, size

    is_remote = False  # whether every read is a request to a store

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Record the identity of a file without opening it; refuse anything but a regular file."""
        if isinstance(path, RemotePath):
            from resize_pos.containers.remote.tree import open_file

            return open_file(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            raise missing(path) from None
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ContainerError(f"{path.name}: is {what}.")
        return cls(path, status.st_size, _identity(status))

    @contextlib.contextmanager
    def handle(self) -> Iterator[int]:
        """Open the file as a descriptor; refuse it if it changed before or during its use."""
        try:
            descriptor = os.open(self.path, _FLAGS)
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            self._require_same(descriptor)
            yield descriptor
            self._require_same(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file for a parser; add the file's name to the parser's errors."""
        with (
            self.handle() as descriptor,
            self.naming(),
            io.BufferedReader(io.FileIO(descriptor, closefd=False)) as file,
        ):
            yield file

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Add the file's name to errors that do not name it."""
        try:
            yield
        except OSError as error:
            raise unreadable(self.path, error) from error
        except ContainerError as fact:
            raise ContainerError(f"{self.path.name}: {fact.message}", fact.hint) from None

    def beginning(self, length: int) -> bytes:
        """Read at most so many bytes from the start of the file."""
        with self.handle() as descriptor:
            return os.read(descriptor, length)

    def read(self, offset: int, length: int) -> bytes:
        """Read a range of bytes; a file that ends too early is an error."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def blocks(self, offset: int, length: int) -> Iterator[bytes]:
        """Read a long range block by block."""
        for begin in range(offset, offset + length, _BLOCK):
            yield self.read(begin, min(_BLOCK, offset + length - begin))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset` on; a file that ends too early is an error."""
        with self.handle() as descriptor, self.naming():
            file = io.FileIO(descriptor, closefd=False)
            file.seek(offset)
            done = 0
            while done < buffer.nbytes:
                count = file.readinto(buffer[done:])
                if not count:
                    raise ContainerError(
                        f"{buffer.nbytes} bytes expected at {offset}, {done} read.", TRUNCATED
                    )
                done += count

    def require_unchanged(self) -> None:
        """Refuse a file whose identity has changed since it was first seen."""
        with self.handle():
            pass

    def _require_same(self, descriptor: int) -> None:
        if _identity(os.fstat(descriptor)) != self.identity:
            raise ContainerError(
                f"{self.path.name}: changed since it was opened.",
                "Another program is writing to it; try again when it is complete.",
            )


def missing(path: Path) -> ContainerError:
    """Say that there is no such file, and which path was tried."""
    if path.is_symlink():
        return ContainerError(
            f"{path.name}: is a link to {path.readlink()}, where there is no file."
        )
    return ContainerError(
        f"{path.name}: no such file.",
        _meant(str(path)) or _near(path) or f"Looked for {path.absolute()}",
    )


def _meant(given: str) -> str | None:
    """Say what to write instead of a path that only looks like one of this system."""
    if given.startswith("~"):
        return f"~ is not expanded here: write {Path(given).expanduser()}"
    if given == "-":
        return "A checkpoint is not read from stdin; name a file."
    if re.fullmatch(r"hf:/*", given):
        return "For a model on the hub, write hf://ORG/NAME"
    scheme = re.match(r"([A-Za-z][\w+.-]+):/", given)
    if scheme is not None and scheme[1] != "hf":
        return f"URLs are read from {', '.join(f'{known}://' for known in SCHEMES)} and hf://."
    if given.startswith("hf:"):
        return f"For a model on the hub, write hf://{given.removeprefix('hf:').strip('/')}"
    slashed = given.replace("\\", "/")
    if slashed != given and os.path.lexists(slashed):
        return f"Folders are separated by / here: write {slashed}"
    bare = given.strip("'\"")
    if bare != given and os.path.lexists(bare):
        return f"Write it without the quotes in its name: {bare}"
    return None


def _near(path: Path) -> str | None:
    """Name the file beside a missing one that has nearly its name."""
    import shlex  # only a missing file needs these
    from difflib import get_close_matches

    try:
        beside = sorted(entry.name for entry in path.absolute().parent.iterdir())[:_MOST_COMPARED]
    except OSError:
        return None
    near = get_close_matches(path.name, beside, n=1, cutoff=_ALMOST)
    return f"Did you mean {shlex.quote(str(path.with_name(near[0])))}?" if near else None


_MOST_COMPARED = 5_000
_ALMOST = 0.85  # of the letters


def unreadable(path: Path, error: OSError | ValueError) -> ContainerError:
    """Say why the system refused to read a file."""
    reason = getattr(error, "strerror", None) or str(error)
    return ContainerError(f"{path.name}: cannot be read: {reason}.")


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size
