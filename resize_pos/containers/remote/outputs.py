"""Outputs in a store: complete, or not there at all.

A store has no rename. So nothing is visible until the last step: an output is described and
uploaded first, checked as if it were there, and then completed on the condition that the store
still holds what it held before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from resize_pos.containers.detect import is_index
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote.pending import PendingFile
from resize_pos.containers.remote.traffic import plan_to_write
from resize_pos.containers.remote.upload import Upload, start_upload
from resize_pos.core.errors import OutputError

if TYPE_CHECKING:
    from resize_pos.containers.io.source_file import SourceFile
    from resize_pos.containers.io.splice import Segment
    from resize_pos.containers.remote.store import ObjectInfo

_LAST = ("config.json", "open_clip_config.json", "model_index.json")


class _Output:
    """One target that is being written, with its files."""

    def __init__(self, target: RemotePath, before: ObjectInfo | None, *, folder: bool) -> None:
        self.target = target
        self.before = before
        self.folder = folder
        self.uploads: dict[RemotePath, Upload] = {}

    def owns(self, path: RemotePath) -> bool:
        return path == self.target or (self.folder and self.target in path.parents)


_outputs: list[_Output] = []


def pending_file(path: RemotePath) -> PendingFile | None:
    """Return a file that is being written here; None if there is none."""
    for output in _outputs:
        if path in output.uploads:
            return output.uploads[path].file
    return None


def pending_folder(path: RemotePath) -> bool:
    """Return whether files are being written below this name."""
    return any(path in upload.parents for output in _outputs for upload in output.uploads)


def pending_names(path: RemotePath) -> Iterator[str]:
    """List the files that are being written below a name."""
    for output in _outputs:
        for upload in output.uploads:
            if path in upload.parents:
                yield upload.relative_to(path).as_posix()


def require_target(target: RemotePath) -> None:
    """Refuse a target in a store that cannot be written to."""
    if target.scheme in ("http", "https"):
        raise OutputError(
            f"{target}: {target.scheme}:// can only be read.",
            "Name a local file, or an object in a store such as s3:// with -o.",
        )
    if not target.key:
        raise OutputError(f"{target}: names a bucket, not an object in it.")


def require_free(target: RemotePath, *, force: bool, folder: bool) -> ObjectInfo | None:
    """Refuse a target that exists, unless `force`; return what would be replaced."""
    from resize_pos.containers.remote.store import Denied, store_of
    from resize_pos.containers.remote.tree import just_listed

    require_target(target)
    store = store_of(target)
    if folder:
        # Not by level: some stores still list folders whose objects were deleted.
        if next(iter(store.walk(target)), None) is not None:
            hint = "Name another folder with -o"
            raise OutputError(
                f"{target}: already exists.",
                f"{hint}; a folder in a store cannot be replaced in one step."
                if force
                else f"{hint}.",
            )
        return None
    known, found = just_listed(target)
    if not known:
        try:
            found = store.info(target)
        except Denied:
            # A store that may not be listed refuses to say that an object is missing. In S3 the
            # upload is completed on the condition that it is.
            if target.scheme != "s3":
                raise
    if found is not None and not force:
        raise OutputError(
            f"{target}: already exists.", "Pass --force to replace it, or name another with -o."
        )
    return found


@contextlib.contextmanager
def staged_remote(target: RemotePath, *, force: bool, folder: bool) -> Iterator[RemotePath]:
    """Yield the target to write to; complete it on success, abort all uploads on any failure."""
    output = _Output(target, require_free(target, force=force, folder=folder), folder=folder)
    _outputs.append(output)
    try:
        yield target
        _complete(output)
    except BaseException:
        for upload in output.uploads.values():
            upload.abort()
        raise
    finally:
        _outputs.remove(output)


def _complete(output: _Output) -> None:
    """Complete every file; what makes a folder loadable comes last. Then read it back."""
    done: list[Upload] = []
    try:
        for path in sorted(output.uploads, key=completion_turn):
            done.append(output.uploads[path])
            output.uploads[path].complete(output.before)
        for upload in done:
            upload.read_back()
    except BaseException:
        if output.before is None:
            for upload in done:
                upload.remove()
        raise


def completion_turn(path: RemotePath) -> tuple[int, str]:
    """Return the sort key of a file: what makes a folder loadable is completed last."""
    return (2 if path.name in _LAST else 1 if is_index(path.name) else 0), str(path)


def write_remote(source: SourceFile | None, stage: RemotePath, segments: Iterable[Segment]) -> int:
    """Upload a file made of ranges of a source and new bytes; it is not visible yet."""
    output = next((output for output in _outputs if output.owns(stage)), None)
    if output is None:
        raise OutputError(f"{stage}: is not part of the output.")
    file = PendingFile.made_of(stage, source, segments)
    plan_to_write(file.size)
    output.uploads[stage] = start_upload(stage, file)
    output.uploads[stage].send()
    return file.size


def write_small(path: RemotePath, data: bytes) -> int:
    """Add a small file to an output."""
    from resize_pos.containers.io.splice import NewBytes

    return write_remote(None, path, [NewBytes(data)])
