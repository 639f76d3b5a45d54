"""A proxy in front of an object store that loses, delays and refuses requests when told to."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[[int, str, str], str | None]  # number, method, path → what goes wrong


class FaultyProxy(ThreadingHTTPServer):
    """Forwards requests; `fault` says what happens to each: None, busy, cut, drop or dead."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        parts = urlsplit(endpoint)
        self.to = (parts.hostname or "", parts.port or 80)
        self.fault: Fault = lambda *_: None
        self.asked: list[tuple[str, str]] = []
        self.dead = False
        self.copies = 0  # the status with which copies are refused; 0: they are forwarded
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Keep quiet when a client hangs up."""


class ProxyHandler(BaseHTTPRequestHandler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _forward(self) -> None:
        server = self.server
        length = int(self.headers.get("Content-Length", 0))
        with server.lock:
            server.asked.append((self.command, self.path))
            number = len(server.asked)
        fault = server.fault(number, self.command, self.path)
        if fault == "dead":
            server.dead = True
        if server.dead or fault == "drop":
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if fault == "busy":
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if server.copies and self.headers.get("x-amz-copy-source"):
            words = b"<Error><Code>NotImplemented</Code></Error>" if server.copies == 501 else b""
            self._answer(server.copies, {}, words)
            return
        with contextlib.closing(http.client.HTTPConnection(*server.to, timeout=60)) as upstream:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
            headers = dict(answer.getheaders())
        if fault == "lost":  # the store did it, but nobody learns of it
            self.close_connection = True
            return
        self._answer(answer.status, headers, data, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        own = {"connection", "transfer-encoding"}
        own |= set() if self.command == "HEAD" else {"content-length"}
        kept = {name: value for name, value in headers.items() if name.lower() not in own}
        if self.command != "HEAD":
            kept["Content-Length"] = str(len(data))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True


@contextlib.contextmanager
def faulty(endpoint: str) -> Iterator[FaultyProxy]:
    """Run a proxy in front of a store."""
    with FaultyProxy(endpoint) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
