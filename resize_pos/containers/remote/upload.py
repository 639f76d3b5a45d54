"""One file on its way into a store, in the way that the store supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from resize_pos.containers.remote.store import ObjectInfo, store_of
from resize_pos.core.errors import ContainerError, OutputError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath
    from resize_pos.containers.remote.pending import PendingFile


class Upload(ABC):
    """An upload that is not visible until it is completed."""

    def __init__(self, path: RemotePath, file: PendingFile) -> None:
        self.path = path
        self.file = file
        self.result: ObjectInfo | None = None  # what the store holds since the upload is complete

    @abstractmethod
    def send(self) -> None:
        """Upload the bytes."""

    @abstractmethod
    def complete(self, before: ObjectInfo | None) -> None:
        """Make the object visible, if the store still holds what it held `before`."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what was uploaded; never raises."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the object, if it is the one that was completed here; never raises."""

    def read_back(self) -> None:
        """Compare the header and the tables in the store with what was sent."""
        assert self.result is not None
        if self.result.size != self.file.size:
            raise self._differs(f"has {self.result.size} bytes, not {self.file.size}")
        for begin, end in self.file.new_ranges():
            try:
                same = self._stored_as_sent(begin, end)
            except ContainerError as error:
                raise self._differs(f"cannot be read back: {error.message}") from error
            if not same:
                raise self._differs(f"differs from what was sent in bytes {begin} to {end}")

    def _stored_as_sent(self, begin: int, end: int) -> bool:
        store = store_of(self.path)
        assert self.result is not None
        try:
            return self._same(self.result, begin, end)
        except ContainerError:
            # Some stores state another ETag later than when they complete an upload.
            found = store.info(self.path)
            if found is None or found.size != self.file.size or found == self.result:
                raise
            self.result = found
            return self._same(found, begin, end)

    def _same(self, stored: ObjectInfo, begin: int, end: int) -> bool:
        """Compare a range block by block: it may be as long as a large table."""
        for block in store_of(self.path).blocks(self.path, stored, begin, end - begin):
            if block != self.file.fetch(begin, len(block)):
                return False
            begin += len(block)
        return begin == end

    def _differs(self, how: str) -> OutputError:
        return OutputError(
            f"{self.path}: the object {how}.", "The store did not keep the bytes; try again."
        )


def start_upload(path: RemotePath, file: PendingFile) -> Upload:
    """Return the upload that suits the store."""
    if path.scheme == "s3":
        from resize_pos.containers.remote.s3_upload import S3Upload

        return S3Upload(path, file)
    from resize_pos.containers.remote.fsspec_store import FsspecUpload

    return FsspecUpload(path, file)


def taken(path: RemotePath) -> OutputError:
    """Say that somebody else has written the target."""
    return OutputError(
        f"{path}: was written by another program in the meantime.",
        "Pass --force to replace it, or name another with -o.",
    )
