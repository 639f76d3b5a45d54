"""The file that a checkpoint is read from: opened for reading only, and watched for changes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from resize_pos.containers.base import missing
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_TRUNCATED = "The file looks truncated; download or copy it again."


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A regular file, and what it was like when it was first looked at."""

    path: Path
    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Look at a file; a folder, a pipe or nothing at all is refused."""
        try:
            status = path.stat()
        except FileNotFoundError:
            raise missing(path) from None
        except OSError as error:
            raise cls._unreadable(path, error) from error
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a file"
            raise ContainerError(f"{path.name}: is {what}.")
        return cls(path, status.st_size, status.st_mtime_ns)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it; errors of the system and bare facts get the file's name put before them."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != (self.size, self.changed):
                    raise ContainerError(
                        "changed since it was opened.",
                        "Another program is writing to it; try again when it is complete.",
                    )
                yield file
        except OSError as error:
            raise self._unreadable(self.path, error) from error
        except ContainerError as fact:
            raise ContainerError(f"{self.path.name}: {fact.message}", fact.hint) from None

    def require_unchanged(self) -> None:
        """Refuse a file that is not what was looked at any more."""
        with self.open():
            pass

    @staticmethod
    def _unreadable(path: Path, error: OSError) -> ContainerError:
        return ContainerError(f"{path.name}: cannot be read: {error.strerror}.")


def read_exactly(file: BinaryIO, offset: int, target: memoryview) -> None:
    """Fill a buffer from a place of a file."""
    file.seek(offset)
    done = 0
    while done < target.nbytes:
        count = file.readinto(target[done:])  # type: ignore[attr-defined]
        if not count:
            raise ContainerError(
                f"{target.nbytes} bytes expected at {offset}, {done} read.", _TRUNCATED
            )
        done += count
