"""Objects in stores that fsspec reads and writes (Google, Azure)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resize_pos.containers.remote.store import Listing, ObjectInfo, Store, changed, needs, store_of
from resize_pos.containers.remote.traffic import count
from resize_pos.containers.remote.upload import Upload, taken
from resize_pos.core.errors import ContainerError, ResizePosError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

_BLOCK = 8 << 20

# The scheme of a URL → fsspec's name for it, its package, and our extra.
_PACKAGES = {
    "gs": ("gcs", "gcsfs", "gcs"),
    "gcs": ("gcs", "gcsfs", "gcs"),
    "az": ("abfs", "adlfs", "azure"),
    "abfs": ("abfs", "adlfs", "azure"),
}

# Fields that tell two versions of an object apart, best first. Every store has its own names.
_VERSIONS = (
    "generation",
    "etag",
    "ETag",
    "md5Hash",
    "blob_id",
    "last_modified",
    "mtime",
    "created",
)


class FsspecStore(Store):
    """A store that fsspec has a file system for.

    fsspec has no conditional reads. So after every range the version of the object is compared.
    """

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._made: Any = None

    def file_system(self, path: RemotePath) -> Any:
        """Return the file system; the first call imports its package."""
        if self._made is None:
            import fsspec

            protocol, package, extra = _PACKAGES.get(self._scheme, (self._scheme, "fsspec", "all"))
            try:
                with translated(path):
                    # No listing is cached: a later question must see the store as it is then.
                    self._made = fsspec.filesystem(protocol, use_listings_cache=False)
            except ImportError:
                raise needs(path, package, extra) from None
        return self._made

    def info(self, path: RemotePath) -> ObjectInfo | None:
        """Describe an object; None: there is none."""
        system = self.file_system(path)
        count(1)
        try:
            with translated(path):
                found = system.info(_name(path))
        except FileNotFoundError:
            return None
        return None if found["type"] == "directory" else _described(found)

    def open_range(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block, and compare the version afterwards."""
        system = self.file_system(path)
        for begin in range(offset, offset + length, _BLOCK):
            end = min(begin + _BLOCK, offset + length)
            count(1)
            try:
                with translated(path):
                    block = system.cat_file(_name(path), start=begin, end=end)
            except FileNotFoundError:
                raise changed(path) from None
            if len(block) > end - begin:
                raise ContainerError(f"{path}: the server does not read ranges of objects.")
            yield block
        if self.info(path) != info:
            raise changed(path)

    def page(self, path: RemotePath) -> Listing:
        """List one level below a name."""
        folders, files = [], {}
        for found in self._listed(path, detail=True):
            name = found["name"].rstrip("/").rpartition("/")[2]
            if found["type"] == "directory":
                folders.append(name)
            elif found["name"].rstrip("/") != _name(path):
                files[name] = _described(found)
        return Listing(tuple(folders), files)

    def _listed(self, path: RemotePath, **options: Any) -> Any:
        system = self.file_system(path)
        count(1)
        try:
            with translated(path):
                return system.ls(_name(path), **options)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, path: RemotePath) -> Iterator[tuple[str, ObjectInfo]]:
        """List every object below a name, by its relative name."""
        system = self.file_system(path)
        count(1)
        with translated(path):
            found = system.find(_name(path), detail=True)
        for name, described in found.items():
            yield name[len(_name(path)) :].lstrip("/"), _described(described)


class FsspecUpload(Upload):
    """An object that is streamed into its store when everything else has been checked."""

    def send(self) -> None:
        """Wait for the new bytes; the object is written when it is completed."""
        self.file.wait()

    def complete(self, before: ObjectInfo | None) -> None:
        """Write the object, if the store still holds what it held `before`."""
        store = store_of(self.path)
        assert isinstance(store, FsspecStore)
        if store.info(self.path) != before:
            raise taken(self.path)
        if any(piece.source is not None for piece in self.file.pieces):
            count(note=f"{self.path}: all bytes went through this machine")
        # A new object is created on the condition that there is none. fsspec has no such mode for
        # an object that is replaced, so that leaves a short moment after the look above.
        mode = "xb" if before is None else "wb"
        with translated(self.path), _not_taken(self.path):
            stream = store.file_system(self.path).open(_name(self.path), mode, block_size=_BLOCK)
            try:
                for begin in range(0, self.file.size, _BLOCK):
                    data = self.file.fetch(begin, min(_BLOCK, self.file.size - begin))
                    stream.write(data)
                    count(1, sent=len(data))
            except BaseException:
                with contextlib.suppress(Exception):
                    stream.discard()
                stream.closed = True  # closing it would complete the object
                raise
            stream.close()
        self.result = store.info(self.path)

    def abort(self) -> None:
        """Do nothing: what was not completed is not in the store."""

    def remove(self) -> None:
        """Remove the object, if it is the one that was completed here; never raises."""
        store = store_of(self.path)
        assert isinstance(store, FsspecStore)
        with contextlib.suppress(Exception):
            if self.result is not None and store.info(self.path) == self.result:
                store.file_system(self.path).rm_file(_name(self.path))


@contextlib.contextmanager
def _not_taken(path: RemotePath) -> Iterator[None]:
    """Say that somebody else has created the object, if a create-only write was refused."""
    try:
        yield
    except FileExistsError:
        raise taken(path) from None


def _name(path: RemotePath) -> str:
    return f"{path.host}/{path.key}" if path.key else path.host


def _described(found: Mapping[str, Any]) -> ObjectInfo:
    version = next((str(found[key]) for key in _VERSIONS if found.get(key)), "")
    return ObjectInfo(int(found["size"] or 0), version)


@contextlib.contextmanager
def translated(path: RemotePath) -> Iterator[None]:
    """Convert errors of a file system into ours; a missing object stays a `FileNotFoundError`."""
    try:
        yield
    except (ResizePosError, FileNotFoundError, NotADirectoryError, ImportError):
        raise
    except Exception as error:  # every package has its own errors
        words = (str(error).strip().splitlines() or [""])[0]
        words = re.sub(r"\?\S+", "?***", words).rstrip(".")  # a signature may follow the ?
        raise ContainerError(
            f"{path}: the store reports {type(error).__name__}{': ' + words if words else ''}.",
            "Credentials come from the store's own tools and environment variables.",
        ) from error
