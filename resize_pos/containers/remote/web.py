"""Requests to web servers through the standard library."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from resize_pos.containers.remote.pace import PacedResponse, paced
from resize_pos.containers.remote.store import TryAgain
from resize_pos.containers.remote.traffic import count

_TIMEOUT = 60.0  # seconds without any byte
LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _Follow(urllib.request.HTTPRedirectHandler):
    """Follow redirects to web servers; return one to another kind of address as it is."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Follow, or do not."""
        if not newurl.lower().startswith(("http://", "https://")):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Return a redirect as it is."""

    def redirect_request(self, *_: Any) -> None:
        """Do not follow."""


class _Connection(http.client.HTTPConnection):
    response_class = PacedResponse


class _SecureConnection(http.client.HTTPSConnection):
    response_class = PacedResponse


class _Plain(urllib.request.HTTPHandler):
    """Opens connections whose answers are watched."""

    def http_open(self, req: urllib.request.Request) -> Any:
        """Send a request."""
        return self.do_open(_Connection, req)


class _Secure(urllib.request.HTTPSHandler):
    """The same with TLS."""

    def https_open(self, req: urllib.request.Request) -> Any:
        """Send a request."""
        return self.do_open(_SecureConnection, req)


def ask(url: str, headers: Mapping[str, str], *, secret: str = "", follow: bool = True) -> Any:
    """Send one request; return the answer, whatever its status. Trouble that passes is `TryAgain`.

    `secret` is the header Authorization. It is not sent to the target of a redirect.
    """
    request = urllib.request.Request(url, headers={**headers, "Accept-Encoding": "identity"})
    if secret:
        request.add_unredirected_header("Authorization", secret)
    opener = urllib.request.build_opener(_Follow if follow else _Stay, _Plain, _Secure)
    count(1)
    try:
        return opener.open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code in LATER:
            error.close()
            raise TryAgain(f"the server answered {error.code}") from None
        return error
    except (OSError, http.client.HTTPException) as error:
        # The reason may contain the address with its secrets, so only its kind is shown.
        cause = getattr(error, "reason", error)
        words = getattr(cause, "strerror", None) or type(cause).__name__
        raise TryAgain(f"the server cannot be reached: {words}") from None


def body(answer: Any, length: int) -> Iterator[bytes]:
    """Read at most so many bytes of an answer, block by block."""
    try:
        yield from paced(answer.read1, length)
    except (OSError, http.client.HTTPException) as error:
        raise TryAgain(f"the connection broke ({type(error).__name__})") from error
