"""Which objects and folders there are, and the files that were opened; each is asked for once.

What is known of a URL is forgotten when a user names it again, so a later run sees the store as it
is then.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from resize_pos.containers.remote.outputs import pending_file, pending_folder, pending_names
from resize_pos.containers.remote.remote_file import FIRST, UPLOADED, RemoteFile
from resize_pos.containers.remote.store import Denied, Listing, ObjectInfo, store_of
from resize_pos.containers.remote.traffic import count
from resize_pos.core.errors import ContainerError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath
    from resize_pos.containers.io.source_file import SourceFile

_lock = threading.RLock()
_files: dict[RemotePath, RemoteFile] = {}
_listings: dict[RemotePath, Listing] = {}
_begun: set[RemotePath] = set()  # objects whose beginning goes into an upload
_kept: set[RemotePath] = set()  # folders whose listing a batch shares among its jobs
_secret: set[RemotePath] = set()  # folders that we may not list
_told: set[RemotePath] = set()  # those of which the report says that we may not see what is there
_fresh: set[RemotePath] = set()  # those whose listing was made for this run


def forget(path: RemotePath) -> None:
    """Forget what is known of a URL, of what lies below it, and of its neighbours."""
    with _lock:
        _begun.discard(path)
        _secret.clear()
        _told.clear()
        for known in [p for p in _files if p == path or path in p.parents]:
            del _files[known]
        for known in [p for p in _listings if p not in _kept]:
            if known in (path, path.parent) or path in known.parents:
                del _listings[known]


@contextlib.contextmanager
def sharing(listings: Mapping[RemotePath, Listing], *, fresh: bool = False) -> Iterator[None]:
    """Use listings that were made before while checkpoints in these folders are converted.

    `fresh` listings also say whether a target exists. That is for a dry run, which writes nothing.
    """
    with _lock:
        _listings.update(listings)
        _kept.update(listings)
        _fresh.update(listings if fresh else ())
    try:
        yield
    finally:
        with _lock:
            for folder in listings:
                _listings.pop(folder, None)
            _kept.difference_update(listings)
            _fresh.difference_update(listings)


def will_be_uploaded(path: RemotePath) -> None:
    """Read more of an object at first: the new header needs the bytes after it for its part.

    Without this, they are one more request.
    """
    _begun.add(path)


def open_file(path: RemotePath) -> SourceFile:
    """Open an object: read its first bytes, and remember which version it is."""
    pending = pending_file(path)
    if pending is not None:
        return pending
    with _lock:
        known = _files.get(path)
    if known is not None:
        return known
    info = _from_listing(path)
    if info is not None:
        with _lock:
            return _files.setdefault(path, RemoteFile.of(path, info))
    if not may_be_file(path):
        hint = "Check the spelling."
        if not store_of(path).can_list:
            hint += " A folder cannot be read here: name a file of weights or an index."
        raise ContainerError(f"{path}: no such object.", hint)
    return _files[path]


def may_be_file(path: RemotePath) -> bool:
    """Return whether there is an object with this name; its first bytes are read with it."""
    if pending_folder(path):
        return False
    if pending_file(path) is not None or path in _files:
        return True
    if path.parent in _listings:
        return object_info(path) is not None
    found = store_of(path).first(path, UPLOADED if path in _begun else FIRST)
    if found is None:
        return False
    file = RemoteFile.of(path, found[0])
    file.remember(0, found[1])
    with _lock:
        _files[path] = file
    return True


def _from_listing(path: RemotePath) -> ObjectInfo | None:
    listing = _listings.get(path.parent)
    return None if listing is None else listing.files.get(path.name)


def just_listed(path: RemotePath) -> tuple[bool, ObjectInfo | None]:
    """Say whether this run has listed the folder of an object, and what it saw of the object."""
    listing = _listings.get(path.parent)
    old = path.parent in _kept and path.parent not in _fresh
    if listing is None or old or not listing.covers(path.name):
        return False, None
    return True, listing.files.get(path.name)


def object_info(path: RemotePath) -> ObjectInfo | None:
    """Describe an object; a listing of its folder that was made before is used."""
    pending = pending_file(path)
    if pending is not None:
        return ObjectInfo(pending.size, "")
    known = _files.get(path)
    if known is not None:
        return known.info
    store = store_of(path)
    listing = _listings.get(path.parent)
    if listing is not None and listing.covers(path.name):
        return listing.files.get(path.name)
    if store.can_list:
        return store.info(path)
    return _files[path].info if may_be_file(path) else None


def is_listed(path: RemotePath) -> bool:
    """Return whether there is such an object; the whole folder is listed with one request."""
    if pending_file(path) is not None or path in _files:
        return True
    if pending_folder(path.parent):
        return False
    if store_of(path).can_list and path.parent not in _secret:
        try:
            listing = listed(path.parent)
            if listing.covers(path.name):
                return path.name in listing.files
        except Denied:  # who may read an object may often not list its folder
            _secret.add(path.parent)
    try:
        return object_info(path) is not None
    except Denied:
        # A signature holds for one file. And a store that may not be listed refuses what is missing
        # in the same words as what is secret.
        _tell(path.parent)
        return False


def _tell(folder: RemotePath) -> None:
    """Say once that files beside a checkpoint were left out, because we may not see them."""
    with _lock:
        if folder in _told:
            return
        _told.add(folder)
    count(
        note=f"{folder}: the store does not let us see what lies here beside the checkpoint, so "
        "config files were not used"
    )


def folder_exists(path: RemotePath) -> bool:
    """Return whether there are objects below a name."""
    if pending_folder(path):
        return True
    if not store_of(path).can_list:
        return False
    try:
        listing = listed(path)
    except FileNotFoundError:
        return False
    return bool(listing.folders or listing.files)


def listed(path: RemotePath) -> Listing:
    """List what lies one level below a name."""
    if pending_folder(path):
        return _top({name: ObjectInfo(0, "") for name in pending_names(path)})
    known = _listings.get(path)
    if known is None:
        known = store_of(path).page(path)
        with _lock:
            _listings[path] = known
    return known


def walked(path: RemotePath) -> dict[str, SourceFile]:
    """List every object below a name, as files that are opened when they are read."""
    if pending_folder(path):
        return {name: open_file(path / name) for name in sorted(pending_names(path))}
    found = dict(sorted(store_of(path).walk(path)))
    with _lock:
        _listings[path] = _top(found)
        for name, info in found.items():
            _files.setdefault(path / name, RemoteFile.of(path / name, info))
        return {name: _files[path / name] for name in found}


def _top(found: dict[str, ObjectInfo]) -> Listing:
    files = {name: info for name, info in found.items() if "/" not in name}
    folders = dict.fromkeys(name.partition("/")[0] for name in found if "/" in name)
    return Listing(tuple(folders), files)
