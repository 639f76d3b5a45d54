"""Files on web servers that support ranges, through the standard library."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from resize_pos.containers.remote.store import (
    TRIES,
    Listing,
    ObjectInfo,
    Store,
    TryAgain,
    changed,
    pause,
)
from resize_pos.containers.remote.traffic import count
from resize_pos.core.errors import ContainerError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

_TIMEOUT = 60.0  # seconds without any byte
_BLOCK = 1 << 20
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_MISSING = frozenset({404, 410})


class HttpStore(Store):
    """Web servers: conditional reads by ETag, else by the time of the last change."""

    can_list = False

    def __init__(self, scheme: str) -> None:
        del scheme

    def info(self, path: RemotePath) -> ObjectInfo | None:
        """Describe a file; None: there is none."""
        found = self.first(path, 1)
        return None if found is None else found[0]

    def first(self, path: RemotePath, length: int) -> tuple[ObjectInfo, bytes] | None:
        """Describe a file and read its first bytes, with one request."""
        failures = 0
        while True:
            try:
                return self._first(path, length)
            except TryAgain as error:
                failures += 1
                if failures >= TRIES:
                    raise ContainerError(f"{path}: cannot be read: {error}.") from error
                pause(failures)

    def _first(self, path: RemotePath, length: int) -> tuple[ObjectInfo, bytes] | None:
        try:
            answer = _ask(path, {"Range": f"bytes=0-{length - 1}"})
        except FileNotFoundError:
            return None
        with answer:
            headers = answer.headers
            total = headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status != 206:  # the server does not support ranges, or the file is empty
                total = headers.get("Content-Length", "")
            if not total.isdecimal():
                raise ContainerError(f"{path}: the server does not say how long the file is.")
            info = ObjectInfo(int(total), _identity(headers))
            data = b"".join(_body(answer, min(length, info.size)))
        count(received=len(data))
        if len(data) < min(length, info.size):
            raise TryAgain("the connection was closed early")
        return info, data

    def open_range(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block, on the condition that the file is the same."""
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"}
        if info.identity.startswith('"'):  # a weak ETag never fulfils the condition
            headers["If-Match"] = info.identity
        try:
            answer = _ask(path, headers)
        except FileNotFoundError:
            raise changed(path) from None
        with answer:
            if _identity(answer.headers) != info.identity:
                raise changed(path)
            whole = offset == 0 and length == info.size
            if answer.status != 206 and not whole:
                raise ContainerError(
                    f"{path}: the server does not read ranges of files.", "Download the file first."
                )
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if total.isdecimal() and int(total) != info.size:
                raise changed(path)
            yield from _body(answer, length)

    def page(self, path: RemotePath) -> Listing:
        """Refuse: a web server has no listing."""
        _no_listing(path)

    def walk(self, path: RemotePath) -> Iterator[tuple[str, ObjectInfo]]:
        """Refuse: a web server has no listing."""
        _no_listing(path)


def _no_listing(path: RemotePath) -> NoReturn:
    raise ContainerError(
        f"{path}: a web server does not list its files.", "Name a file of weights or an index."
    )


def _identity(headers: Mapping[str, str]) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""


def _ask(path: RemotePath, headers: Mapping[str, str]) -> Any:
    user, query = path.secrets
    name = urllib.parse.quote(path.key, safe="/%+,;=:@!$&'()*~")
    url = f"{path.scheme}://{path.host}/{name}{'?' + query if query else ''}"
    request = urllib.request.Request(url, headers={**headers, "Accept-Encoding": "identity"})
    if user:
        code = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {code}")
    count(1)
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _MISSING:
            raise FileNotFoundError(2, "no such file", str(path)) from None
        if error.code == 412:
            raise changed(path) from None
        if error.code in _LATER:
            raise TryAgain(f"the server answered {error.code}") from None
        if error.code == 416:
            return _empty(path)
        reason = http.client.responses.get(error.code, "")
        hint = "The link may have expired." if query and error.code in (400, 401, 403) else None
        raise ContainerError(f"{path}: the server answered {error.code} {reason}.", hint) from None
    except (OSError, http.client.HTTPException) as error:
        # The reason may contain the address with its secrets, so only its kind is shown.
        cause = getattr(error, "reason", error)
        words = getattr(cause, "strerror", None) or type(cause).__name__
        raise TryAgain(f"the server cannot be reached: {words}") from None
    except ValueError:
        raise ContainerError(f"{path}: is not a web address.") from None


def _empty(path: RemotePath) -> NoReturn:
    raise ContainerError(f"{path}: the file is empty, or shorter than before.")


def _body(answer: Any, length: int) -> Iterator[bytes]:
    try:
        while length > 0 and (block := answer.read(min(_BLOCK, length))):
            length -= len(block)
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise TryAgain(f"the connection broke ({type(error).__name__})") from error
