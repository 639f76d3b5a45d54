"""Objects in S3, and in stores that speak its protocol, through boto3's client.

The client is made by botocore, the part of boto3 that talks to the store. boto3's own session adds
only a transfer manager, whose import takes a fifth of the time and loads `multiprocessing`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from resize_pos.containers.remote.pace import paced
from resize_pos.containers.remote.store import (
    TRIES,
    Denied,
    Listing,
    ObjectInfo,
    Store,
    TryAgain,
    changed,
    needs,
    require_range,
    stated_size,
)
from resize_pos.containers.remote.traffic import count
from resize_pos.core.errors import ContainerError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

CONNECTIONS = 8

_MISSING = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
_CHANGED = frozenset({"412", "PreconditionFailed", "304"})
_NO_RANGE = frozenset({"416", "InvalidRange"})
_DENIED = frozenset({"401", "403", "AccessDenied", "Forbidden"})

_CREDENTIALS = (
    "Credentials come from the AWS SDK: AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws or a role; another "
    "server is named by AWS_ENDPOINT_URL."
)
_EXPIRED = "The credentials have expired: sign in again, for example with aws sso login."
_REGION = "The bucket lies in another region; name it with AWS_DEFAULT_REGION."
_HINTS = {
    **dict.fromkeys(_DENIED, _CREDENTIALS),
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "RequestTimeTooSkewed": "The clock of this machine is wrong; the store compares it.",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "301": _REGION,
}
_NO_BUCKET = "no such bucket"


class S3Store(Store):
    """S3: conditional reads by ETag."""

    def __init__(self, scheme: str) -> None:
        del scheme
        self._lock = threading.Lock()
        self._client: Any = None

    def client(self, path: RemotePath) -> Any:
        """Return the client; the first call imports botocore."""
        with self._lock:
            if self._client is None:
                self._client = _connect(path)
            return self._client

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def info(self, path: RemotePath) -> ObjectInfo | None:
        """Describe an object; None: there is none."""
        if not path.key:
            return None
        try:
            with errors(path):
                found = self.client(path).head_object(Bucket=path.host, Key=path.key)
        except FileNotFoundError:
            return None
        return ObjectInfo(_length(path, found), quoted(found.get("ETag")))

    def first(self, path: RemotePath, length: int) -> tuple[ObjectInfo, bytes] | None:
        """Describe an object and read its first bytes, with one request if possible."""
        if not path.key:
            return None
        try:
            with errors(path):
                found = self.client(path).get_object(
                    Bucket=path.host, Key=path.key, Range=f"bytes=0-{length - 1}"
                )
        except FileNotFoundError as missing:
            if missing.strerror == _NO_BUCKET:
                raise ContainerError(
                    f"{path}: there is no bucket {path.host}.", "Check the spelling."
                ) from None
            return None
        except _Unsatisfiable:  # the answer for an empty object
            info = self.info(path)
            return None if info is None else (info, b"")
        stated = found.get("ContentRange", "")
        size = stated_size(stated.rpartition("/")[2])
        with _closing_if_refused(found):
            if stated and size is not None:
                require_range(path, stated, 0, size)
            size = _length(path, found) if size is None else size
        info = ObjectInfo(size, quoted(found.get("ETag")))
        try:
            data = b"".join(_body(found, min(length, size)))
        except TryAgain:
            data = b""
        count(received=len(data))
        if len(data) < min(length, size):
            data += self.read(path, info, len(data), min(length, size) - len(data))
        return info, data

    def open_range(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block, on the condition that the object is the same."""
        condition = {"IfMatch": info.identity} if info.identity else {}
        try:
            with errors(path):
                found = self.client(path).get_object(
                    Bucket=path.host,
                    Key=path.key,
                    Range=f"bytes={offset}-{offset + length - 1}",
                    **condition,
                )
        except (FileNotFoundError, _Unsatisfiable):
            raise changed(path) from None
        with _closing_if_refused(found):
            if quoted(found.get("ETag")) != info.identity:
                raise changed(path)  # a store that ignores conditions
            if found.get("ContentLength", length) > length:
                raise ContainerError(f"{path}: the server does not read ranges of objects.")
            if found.get("ContentRange"):  # a store that sends all of an object may leave it out
                require_range(path, found["ContentRange"], offset, info.size)
            elif offset:
                raise ContainerError(f"{path}: the server does not say which bytes it sent.")
        yield from _body(found, length)

    def page(self, path: RemotePath) -> Listing:
        """List one level below a name; of a very large folder only its beginning."""
        prefix = f"{path.key}/" if path.key else ""
        with errors(path):
            found = self.client(path).list_objects_v2(
                Bucket=path.host, Prefix=prefix, Delimiter="/"
            )
        folders = [one["Prefix"][len(prefix) : -1] for one in found.get("CommonPrefixes", ())]
        files = dict(_named(found.get("Contents", ()), prefix))
        last = max([*folders, *files], default="") if found.get("IsTruncated") else None
        return Listing(tuple(name for name in folders if name), files, last)

    def walk(self, path: RemotePath) -> Iterator[tuple[str, ObjectInfo]]:
        """List every object below a name, by its relative name."""
        prefix = f"{path.key}/" if path.key else ""
        pages = self.client(path).get_paginator("list_objects_v2")
        with errors(path):
            for page in pages.paginate(Bucket=path.host, Prefix=prefix):
                yield from _named(page.get("Contents", ()), prefix)


def _length(path: RemotePath, found: Any) -> int:
    if "ContentLength" not in found:
        raise ContainerError(f"{path}: the server does not say how long the object is.")
    length: int = found["ContentLength"]
    return length


@contextlib.contextmanager
def _closing_if_refused(found: Any) -> Iterator[None]:
    """Close the connection of an answer that is not read, because it is a wrong one."""
    try:
        yield
    except BaseException:
        found["Body"].close()
        raise


def _named(contents: Any, prefix: str) -> Iterator[tuple[str, ObjectInfo]]:
    for one in contents:
        name = one["Key"][len(prefix) :]
        if name and not name.endswith("/"):  # some programs make empty objects as folders
            yield name, ObjectInfo(one["Size"], quoted(one.get("ETag")))


def quoted(etag: str | None) -> str:
    """Return an ETag with its quotes, which some stores leave out in listings."""
    bare = (etag or "").strip('"')
    return f'"{bare}"' if bare else ""


class _Unsatisfiable(Exception):
    """The range begins after the end of the object."""


@contextlib.contextmanager
def errors(path: RemotePath) -> Iterator[None]:
    """Convert the SDK's errors into ours; a missing object is a `FileNotFoundError`."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        ParamValidationError,
    )

    try:
        yield
    except ClientError as error:
        code, words = error_code(error)
        if code in _MISSING:
            words = _NO_BUCKET if code == "NoSuchBucket" else "no such object"
            raise FileNotFoundError(2, words, str(path)) from None
        if code in _CHANGED:
            raise changed(path) from None
        if code in _NO_RANGE:
            raise _Unsatisfiable from None
        kind = Denied if code in _DENIED else ContainerError
        hint = _HINTS.get(code, _CREDENTIALS if "(403)" in words else None)
        raise kind(f"{path}: the store refused: {words}.", hint) from error
    except (ConnectionError, HTTPClientError) as error:
        raise ContainerError(
            f"{path}: the store cannot be reached: {_words(error)}.",
            "Check the network, and the address of the store in AWS_ENDPOINT_URL.",
        ) from error
    except ParamValidationError as error:
        raise ContainerError(
            f"{path}: {path.host} cannot be the name of a bucket.", "Check the spelling."
        ) from error
    except BotoCoreError as error:
        raise ContainerError(f"{path}: {_words(error)}.", _CREDENTIALS) from error
    except ValueError as error:  # a header that the SDK cannot convert
        raise ContainerError(f"{path}: the store sent a wrong answer: {_words(error)}.") from error


def error_code(error: Any) -> tuple[str, str]:
    """Return the code of a refused request, and a sentence that states it."""
    found = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    code = str(found.get("Code") or status)
    words = str(found.get("Message") or "").strip().rstrip(".").splitlines()
    return code, f"{code} ({status}){': ' + words[0] if words else ''}"


def _words(error: Exception) -> str:
    return str(error).strip().rstrip(".").splitlines()[0]


def _body(found: Any, length: int) -> Iterator[bytes]:
    from botocore.exceptions import BotoCoreError
    from urllib3.exceptions import HTTPError

    body = found["Body"]
    # The SDK's own `read` waits for all bytes. Below it lies urllib3's answer.
    read = getattr(getattr(body, "_raw_stream", None), "read1", body.read)
    left = length
    try:
        for block in paced(read, length):
            left -= len(block)
            yield block
    except (BotoCoreError, HTTPError, OSError) as error:
        raise TryAgain(_words(error)) from error
    finally:
        if left > 0:
            body.close()  # the rest is not wanted: without this the connection is reused too early


def _connect(path: RemotePath) -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        raise needs(path, "boto3", "s3") from None
    try:
        client = Session().create_client(
            "s3",
            config=Config(
                retries={"mode": "standard", "max_attempts": TRIES},
                max_pool_connections=CONNECTIONS + 2,
                # Other stores than Amazon's do not know the newer checksums.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except BotoCoreError as error:
        region = "region" in type(error).__name__.lower()
        hint = "Check AWS_DEFAULT_REGION." if region else _CREDENTIALS
        raise ContainerError(f"{path}: {_words(error)}.", hint) from error
    except ValueError as error:
        raise ContainerError(
            f"{path}: {_words(error)}.", "AWS_ENDPOINT_URL begins with https:// or http://."
        ) from error
    client.meta.events.register("before-send.s3", _count_request)
    return client


def _count_request(**_: object) -> None:
    count(1)
