"""Files on web servers that support ranges, through the standard library."""

from __future__ import annotations

import base64
import http.client
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from resize_pos.containers.remote.store import (
    TRIES,
    Denied,
    Listing,
    ObjectInfo,
    Store,
    TryAgain,
    changed,
    pause,
    require_range,
    stated_size,
)
from resize_pos.containers.remote.traffic import count
from resize_pos.containers.remote.web import REDIRECTS, ask, body
from resize_pos.core.errors import ContainerError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

_MISSING = frozenset({404, 410})
_REFUSED = frozenset({400, 401, 403})
_NEEDS_SIGNATURE = (
    "The file needs a signed address or a password. A signature holds for one file, not for those "
    "beside it."
)
_HAVE_CONTENT = frozenset({200, 206})


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
                failures += error.weight or 1
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
            stated = headers.get("Content-Range", "")
            size = stated_size(stated.rpartition("/")[2])
            if answer.status != 206:  # the server does not support ranges, or the file is empty
                size = stated_size(headers.get("Content-Length", ""))
            if size is None:
                raise ContainerError(f"{path}: the server does not say how long the file is.")
            if answer.status == 206:
                require_range(path, stated, 0, size)
            info = ObjectInfo(size, _identity(headers))
            data = b"".join(body(answer, min(length, info.size)))
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
            if answer.status == 206:
                require_range(path, answer.headers.get("Content-Range", ""), offset, info.size)
            yield from body(answer, length)

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
    secret = ""
    if user:
        secret = f"Basic {base64.b64encode(urllib.parse.unquote(user).encode()).decode()}"
    try:
        answer = ask(url, headers, secret=secret)
    except ValueError:
        raise ContainerError(f"{path}: is not a web address.") from None
    if answer.status in _HAVE_CONTENT:
        return answer
    answer.close()
    if answer.status in REDIRECTS:
        raise ContainerError(
            f"{path}: the server redirects in a circle, or to something that is no web address."
        )
    if answer.status in _MISSING:
        raise FileNotFoundError(2, "no such file", str(path))
    if answer.status == 412:
        raise changed(path)
    if answer.status == 416:
        return _empty(path)
    reason = http.client.responses.get(answer.status, "")
    refused = answer.status in _REFUSED
    hint = None
    if refused:
        hint = "The link may have expired." if query else _NEEDS_SIGNATURE
    kind = Denied if refused else ContainerError
    raise kind(f"{path}: the server answered {answer.status} {reason}.", hint)


def _empty(path: RemotePath) -> NoReturn:
    raise ContainerError(f"{path}: the file is empty, or shorter than before.")
