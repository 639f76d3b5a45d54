"""A client for S3 with the names and answers of boto3's, where variables state all settings.

boto3 reads the description of a thousand operations before its first request, which takes longer
than the whole plan of a conversion. A dozen operations are needed here. Where it is not clear which
server, region and key the SDK would use (`s3_settings.py`), boto3's own client is used.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from resize_pos.containers.remote import store
from resize_pos.containers.remote.pace import PacedResponse
from resize_pos.containers.remote.part_reader import PartReader
from resize_pos.containers.remote.s3_answers import (
    Answer,
    Refused,
    copied,
    described,
    document,
    streamed,
)
from resize_pos.containers.remote.s3_settings import PlainSettings
from resize_pos.containers.remote.s3_signature import quoted_path, quoted_query, signed
from resize_pos.containers.remote.traffic import count
from resize_pos.core.fast_dataclass import dataclass

_SILENCE = 60.0  # seconds without any byte; the SDK has the same limit
_LATER = frozenset({429, 500, 502, 503, 504})
_LATER_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "InternalError",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


class Unreachable(Exception):
    """There was no answer, however often the request was sent."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """How an operation is asked for, and what becomes of its answer."""

    method: str
    answer: Callable[[Answer], dict[str, Any]]
    query: tuple[tuple[str, str], ...] = ()


# The names of the SDK → headers, and fields after the question mark.
_HEADERS = {
    "Range": "Range",
    "IfMatch": "If-Match",
    "IfNoneMatch": "If-None-Match",
    "ContentType": "Content-Type",
    "CopySourceRange": "x-amz-copy-source-range",
    "CopySourceIfMatch": "x-amz-copy-source-if-match",
}
_FIELDS = {
    "UploadId": "uploadId",
    "PartNumber": "partNumber",
    "Prefix": "prefix",
    "Delimiter": "delimiter",
    "MaxKeys": "max-keys",
    "ContinuationToken": "continuation-token",
}


class PlainClient:
    """The operations of S3 that are used here, by the names that they have in the SDK."""

    def __init__(self, settings: PlainSettings) -> None:
        self._settings = settings
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._context: Any = None
        self.meta = SimpleNamespace(endpoint_url=settings.server)

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        if name not in _OPERATIONS:
            raise AttributeError(name)
        return partial(self._call, _OPERATIONS[name])

    def get_paginator(self, name: str) -> Any:
        """Return what lists all pages of an operation."""
        return SimpleNamespace(paginate=partial(self._pages, name))

    def _pages(self, name: str, **given: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = getattr(self, name)(**given)
            yield page
            if not page.get("IsTruncated") or not page.get("NextContinuationToken"):
                return
            given["ContinuationToken"] = page["NextContinuationToken"]

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _call(self, operation: _Operation, /, **given: Any) -> dict[str, Any]:
        path = f"/{given.pop('Bucket')}/{given.pop('Key', '')}".removesuffix("/")
        query = dict(operation.query)
        headers: dict[str, str] = {}
        body = _body_of(given)
        origin = given.pop("CopySource", None)
        if origin is not None:
            headers["x-amz-copy-source"] = quoted_path(f"{origin['Bucket']}/{origin['Key']}")
        for name, value in given.items():
            if name in _HEADERS:
                headers[_HEADERS[name]] = str(value)
            else:
                query[_FIELDS[name]] = str(value)
        if body or operation.method in ("PUT", "POST"):
            headers["Content-Length"] = str(sum(piece.nbytes for piece in body))
        request = (operation.method, quoted_path(path), quoted_query(query))
        return self._repeated(operation, request, headers, body)

    def _repeated(
        self,
        operation: _Operation,
        request: tuple[str, str, str],
        headers: Mapping[str, str],
        body: Sequence[memoryview],
    ) -> dict[str, Any]:
        """Send a request until it is answered; trouble that may pass is waited for."""
        failures = 0
        while True:
            try:
                answer = self._send(request, headers, body)
                if answer.status < 300:
                    return operation.answer(answer)
                raise answer.refused()
            except Refused as refused:
                status = refused.response["ResponseMetadata"]["HTTPStatusCode"]
                code = refused.response["Error"]["Code"]
                failures += 1
                if failures >= store.TRIES or not (status in _LATER or code in _LATER_CODES):
                    raise
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                if failures >= store.TRIES:
                    words = getattr(error, "strerror", None) or type(error).__name__
                    raise Unreachable(f"{self._settings.server}: {words}") from error
            store.pause(failures)

    def _send(
        self, request: tuple[str, str, str], headers: Mapping[str, str], body: Sequence[memoryview]
    ) -> Answer:
        method, path, query = request
        count(1)
        connection = self._connection()
        try:
            connection.putrequest(
                method,
                _address(path, query),
                skip_host=True,
                skip_accept_encoding=True,
            )
            for name, value in signed(self._settings, request, headers, body).items():
                connection.putheader(name, value)
            connection.endheaders()
            # A server may refuse, and close, before it has read everything. Its answer says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in body:
                    connection.send(piece)
            return Answer(connection, connection.getresponse(), self._keep)
        except BaseException:
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._connect()
            if _is_open(kept):
                return kept
            kept.close()

    def _connect(self) -> http.client.HTTPConnection:
        scheme, _, place = self._settings.server.partition("://")
        if scheme == "http":
            made = http.client.HTTPConnection(place, timeout=_SILENCE)
        else:
            with self._lock:
                if self._context is None:
                    self._context = _trusting(self._settings.authorities)
            made = http.client.HTTPSConnection(place, timeout=_SILENCE, context=self._context)
        made.response_class = PacedResponse
        return made

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)


def _address(path: str, query: str) -> str:
    """Write an address as the SDK does; a field without a value is signed with an equals sign."""
    fields = "&".join(field.removesuffix("=") for field in query.split("&"))
    return f"{path}?{fields}" if fields else path


def _body_of(given: dict[str, Any]) -> list[memoryview]:
    """Take the body from the arguments of a call."""
    parts = given.pop("MultipartUpload", None)
    data = given.pop("Body", b"") if parts is None else _part_list(parts["Parts"])
    views = data.views if isinstance(data, PartReader) else [memoryview(data)]
    return [view for view in views if view.nbytes]


def _part_list(parts: Sequence[Mapping[str, Any]]) -> bytes:
    from xml.sax.saxutils import escape

    lines = "".join(
        f"<Part><PartNumber>{part['PartNumber']}</PartNumber><ETag>{escape(part['ETag'])}</ETag></Part>"
        for part in parts
    )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<CompleteMultipartUpload xmlns="{space}">{lines}</CompleteMultipartUpload>'.encode()


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has neither closed a connection nor sent anything unasked."""
    if connection.sock is None:
        return False
    connection.sock.setblocking(False)
    try:
        connection.sock.recv(1, *([] if _is_secure(connection) else [socket.MSG_PEEK]))
    except (BlockingIOError, InterruptedError):
        return True
    except OSError as error:
        return type(error).__name__ == "SSLWantReadError"
    finally:
        connection.sock.settimeout(_SILENCE)
    return False


def _is_secure(connection: http.client.HTTPConnection) -> bool:
    return connection.default_port == http.client.HTTPS_PORT


def _trusting(authorities: str) -> Any:
    """Trust the authorities in a file, or those that the SDK trusts."""
    import ssl
    from importlib import import_module

    if not authorities:
        try:
            found = import_module("certifi")
        except ImportError:
            found = import_module("botocore.httpsession")
        authorities = found.where()
    return ssl.create_default_context(cafile=authorities)


_LISTED = (("encoding-type", "url"),)
_OPERATIONS = {
    "head_object": _Operation("HEAD", described),
    "get_object": _Operation("GET", streamed),
    "put_object": _Operation("PUT", described),
    "delete_object": _Operation("DELETE", described),
    "list_objects_v2": _Operation("GET", document, (("list-type", "2"), *_LISTED)),
    "list_multipart_uploads": _Operation("GET", document, (("uploads", ""), *_LISTED)),
    "create_multipart_upload": _Operation("POST", document, (("uploads", ""),)),
    "upload_part": _Operation("PUT", described),
    "upload_part_copy": _Operation("PUT", copied),
    "complete_multipart_upload": _Operation("POST", document),
    "abort_multipart_upload": _Operation("DELETE", described),
}
