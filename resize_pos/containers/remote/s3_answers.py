"""Answers of S3: the names and types that the SDK gives to what is in them."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

from resize_pos.containers.remote.store import stated_size

_LONGEST_TEXT = 64 << 20  # bytes of a listing, or of another answer that is held in memory


class Refused(Exception):
    """The store refused a request; `response` is made as that of the SDK's `ClientError`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.response: dict[str, dict[str, Any]] = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class Answer:
    """An answer whose body was not read yet; its connection is kept when all of it was."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        keep: Callable[[http.client.HTTPConnection], None],
    ) -> None:
        self._connection: http.client.HTTPConnection | None = connection
        self._answer = answer
        self._keep = keep
        self.status = answer.status
        self.headers = answer.headers
        self._release_if_read()

    def read1(self, length: int) -> bytes:
        """Read what has arrived; nothing at the end."""
        try:
            data = self._answer.read1(length)
        except BaseException:
            self.close()
            raise
        if not data and length and not self._answer.isclosed():
            self.close()
        self._release_if_read()
        return data

    def read(self, length: int | None = None) -> bytes:
        """Read all bytes, or so many."""
        found: list[bytes] = []
        left = _LONGEST_TEXT if length is None else length
        while left and (block := self.read1(min(left, 1 << 20))):
            found.append(block)
            left -= len(block)
        if length is None and self._answer.length:
            self.close()
            raise http.client.IncompleteRead(b"", self._answer.length)
        return b"".join(found)

    def close(self) -> None:
        """Close the connection, unless everything was read and it is kept: no more is wanted."""
        self._answer.close()  # it holds the socket if the server wants to close the connection
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _release_if_read(self) -> None:
        if self._connection is None or not (self._answer.isclosed() or self._answer.length == 0):
            return
        self._answer.close()
        if self._answer.will_close:
            self.close()
        else:
            connection, self._connection = self._connection, None
            self._keep(connection)

    def refused(self) -> Refused:
        """Read why a request was refused."""
        reason = self._answer.reason
        try:
            told = _fields_of(_parsed(self.read()))
        except ValueError:  # not XML, or nothing
            told = {}
        code = str(told.get("Code") or self.status)
        return Refused(self.status, code, str(told.get("Message") or reason))


def _parsed(data: bytes) -> Any:
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError) as error:  # it may name an unknown encoding
        raise ValueError("it is not XML") from error


_SEVERAL = {"Contents": "Contents", "CommonPrefixes": "CommonPrefixes", "Upload": "Uploads"}
_ENCODED = frozenset({"Key", "Prefix", "NextKeyMarker"})
_READ: dict[str, Callable[[str], Any]] = {
    "Size": int,
    "IsTruncated": "true".__eq__,
    "LastModified": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    "Initiated": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
}


def _fields(element: Any, *, encoded: bool) -> dict[str, Any]:
    """Read an element and those in it, with the names and types of the SDK."""
    found: dict[str, Any] = {}
    for child in element:
        name = str(child.tag).rpartition("}")[2]
        value: Any = child.text or ""
        if len(child):
            value = _fields(child, encoded=encoded)
        elif name in _READ:
            value = _READ[name](value.strip())
        elif encoded and name in _ENCODED:
            value = unquote_plus(value)
        if name in _SEVERAL:
            found.setdefault(_SEVERAL[name], []).append(value)
        else:
            found[name] = value
    return found


def _fields_of(root: Any) -> dict[str, Any]:
    encoded = any(str(child.tag).endswith("EncodingType") and child.text for child in root)
    return _fields(root, encoded=encoded)


def document(answer: Answer) -> dict[str, Any]:
    """Read an answer in XML. A copy that fails late is told with the status of a success."""
    data = answer.read()
    if not data.strip():
        return {}
    root = _parsed(data)
    told = _fields_of(root)
    if str(root.tag).rpartition("}")[2] == "Error":
        raise Refused(500, str(told.get("Code") or 500), str(told.get("Message") or ""))
    return told


def copied(answer: Answer) -> dict[str, Any]:
    """Read the answer to a copy of a part."""
    return {"CopyPartResult": document(answer)}


def described(answer: Answer) -> dict[str, Any]:
    """Read the headers of an answer without a body."""
    answer.read()
    return _headers(answer)


def streamed(answer: Answer) -> dict[str, Any]:
    """Read the headers of an answer; its body is read later."""
    return {**_headers(answer), "Body": answer}


def _headers(answer: Answer) -> dict[str, Any]:
    from email.utils import parsedate_to_datetime

    headers = {name.lower(): value for name, value in answer.headers.items()}
    found: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": headers}}
    for name, field in (("ETag", "etag"), ("ContentRange", "content-range")):
        if field in headers:
            found[name] = headers[field]
    length = stated_size(headers.get("content-length", ""))
    if length is not None:
        found["ContentLength"] = length
    if "last-modified" in headers:
        with contextlib.suppress(TypeError, ValueError):
            found["LastModified"] = parsedate_to_datetime(headers["last-modified"]).astimezone(UTC)
    return found
