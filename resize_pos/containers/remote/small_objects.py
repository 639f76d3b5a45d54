"""Small objects in S3 that several machines write: every write states which version it replaces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from resize_pos.containers.remote.s3_store import S3Store, error_code, errors, quoted
from resize_pos.containers.remote.store import ObjectInfo, store_of
from resize_pos.containers.remote.traffic import count
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

# The object is not the expected one any more; 409 is the answer while another write is under way.
_LOST = frozenset(
    {"412", "PreconditionFailed", "409", "ConditionalRequestConflict", "404", "NoSuchKey"}
)


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read."""

    data: bytes
    etag: str
    age: float  # seconds since it was written, by the clock of the store


def read_small(path: RemotePath) -> Stored | None:
    """Read an object; None: there is none."""
    try:
        with errors(path):
            found = _client(path).get_object(Bucket=path.host, Key=path.key)
            data = found["Body"].read()
    except FileNotFoundError:
        return None
    count(received=len(data))
    return Stored(data, quoted(found.get("ETag")), _age(found))


def _age(found: Any) -> float:
    """Compare two times of the store's own clock; clocks of other machines may differ."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - found["LastModified"]).total_seconds())
    return 0.0


def write_small_if(path: RemotePath, data: bytes, before: str | None) -> str | None:
    """Write an object if it is still the version `before` (None: if it is absent).

    Returns the new version; None if somebody else was faster. An answer that was lost looks the
    same, because the request is repeated; so the caller reads the object to see whose it is.
    """
    from botocore.exceptions import ClientError

    condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": before}
    client = _client(path)
    with errors(path):
        try:
            answer = client.put_object(Bucket=path.host, Key=path.key, Body=data, **condition)
        except ClientError as error:
            code, words = error_code(error)
            if code == "NoSuchBucket":
                raise OutputError(f"{path}: there is no such bucket.") from None
            if code in _LOST:
                return None
            raise OutputError(f"{path}: the store refused: {words}.") from error
    count(sent=len(data))
    return quoted(answer.get("ETag"))


def delete_if(path: RemotePath, etag: str) -> None:
    """Delete an object if it is still this version."""
    from botocore.exceptions import ClientError

    with errors(path), contextlib.suppress(ClientError):
        _client(path).delete_object(Bucket=path.host, Key=path.key, IfMatch=etag)


def listed_now(path: RemotePath) -> ObjectInfo | None:
    """Describe an object as listings do: some stores state another ETag there than elsewhere."""
    with errors(path):
        found = _client(path).list_objects_v2(Bucket=path.host, Prefix=path.key, MaxKeys=1)
    for one in found.get("Contents", ()):
        if one["Key"] == path.key:
            return ObjectInfo(one["Size"], quoted(one.get("ETag")))
    return None


def abort_uploads(path: RemotePath, since: float) -> None:
    """Abort the uploads of an object, or of objects below it, that were begun after a time."""
    client = _client(path)
    begun = datetime.fromtimestamp(since, UTC)
    try:
        with errors(path):
            found = client.list_multipart_uploads(Bucket=path.host, Prefix=path.key)
    except (ContainerError, FileNotFoundError):  # rclone refuses if there are none
        return
    for one in found.get("Uploads") or ():
        key = one["Key"]
        ours = key == path.key or key.startswith(f"{path.key}/")
        if ours and one["Initiated"] >= begun:
            with contextlib.suppress(Exception):  # it may be gone already
                client.abort_multipart_upload(Bucket=path.host, Key=key, UploadId=one["UploadId"])


def delete_all(folder: RemotePath, names: Iterable[str]) -> None:
    """Delete objects below a name, in this order."""
    with errors(folder):
        for name in names:
            _client(folder).delete_object(Bucket=folder.host, Key=f"{folder.key}/{name}")


def _client(path: RemotePath) -> Any:
    store = store_of(path)
    assert isinstance(store, S3Store)
    return store.client(path)
