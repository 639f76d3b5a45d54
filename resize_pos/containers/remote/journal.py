"""Uploads that this machine has begun, so that the next run can abort those of a killed process.

A store does not say who began an upload. Each one is noted in a small file in the user's cache
folder while it lasts. If that folder cannot be written, nothing is noted; then a rule of the bucket
(AbortIncompleteMultipartUpload) has to remove what a killed process left.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.io.stage_names import this_writer, writer_lives
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "resize-pos" / "uploads"


@dataclass(frozen=True, slots=True)
class Journal:
    """The note of one upload."""

    note: Path | None

    @classmethod
    def enter(cls, client: Any, path: RemotePath, upload: str) -> Journal:
        """Note an upload that was begun."""
        document = {**_place(client, path), "upload": upload, "writer": this_writer()}
        try:
            folder = _folder()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            note = folder / f"{os.urandom(8).hex()}.json"
            note.write_text(json.dumps(document), encoding="utf-8")
        except (OSError, RuntimeError):  # no home folder
            return cls(None)
        return cls(note)

    def leave(self) -> None:
        """Remove the note: the upload is complete or aborted."""
        if self.note is not None:
            with contextlib.suppress(OSError):
                self.note.unlink(missing_ok=True)


def abort_abandoned(client: Any, path: RemotePath) -> None:
    """Abort the uploads to the same target that a killed process of this machine left."""
    place = _place(client, path)
    for note in _notes():
        try:
            document = json.loads(note.read_text(encoding="utf-8"))
            same = all(document[key] == value for key, value in place.items())
            upload, writer = str(document["upload"]), str(document["writer"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not same or writer_lives(writer):
            continue
        with contextlib.suppress(Exception):  # it may be gone already
            client.abort_multipart_upload(Bucket=path.host, Key=path.key, UploadId=upload)
        Journal(note).leave()


def _notes() -> list[Path]:
    try:
        return sorted(_folder().glob("*.json"))
    except (OSError, RuntimeError):
        return []


def _place(client: Any, path: RemotePath) -> dict[str, str]:
    return {"server": client.meta.endpoint_url, "bucket": path.host, "key": path.key}
