"""A web server that reads ranges, counts what it sends, and misbehaves when told to."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RangeServer(ThreadingHTTPServer):
    """Serves the files of a folder."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), RangeHandler)
        self.folder = folder
        self.asked: list[str] = []  # path and range of every request
        self.sent = 0
        self.ranges = True  # whether it supports them
        self.etags = True
        self.busy: Callable[[int], bool] = lambda *_: False  # answer 503 to this request
        self.secret: Callable[[str], bool] = lambda *_: False  # answer 403 for this address
        self.cut: Callable[[int], bool] = lambda *_: False  # close after half of the answer
        self.before: Callable[[int], None] = lambda *_: None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Keep quiet when a client hangs up."""


class RangeHandler(BaseHTTPRequestHandler):
    server: RangeServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        wanted = self.headers.get("Range", "")
        with server.lock:
            server.asked.append(f"{self.path} {wanted}")
            number = len(server.asked)
        server.before(number)
        file = server.folder / self.path.split("?")[0].lstrip("/")
        if server.busy(number):
            self._refuse(503)
        elif server.secret(self.path):
            self._refuse(403)
        elif not file.is_file():
            self._refuse(404)
        else:
            self._send(file.read_bytes(), wanted, cut=server.cut(number))

    def _refuse(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, data: bytes, wanted: str, *, cut: bool) -> None:
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        if self.headers.get("If-Match", etag) != etag:
            self._refuse(412)
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted) if self.server.ranges else None
        first, last = (int(found[1]), int(found[2])) if found else (0, len(data) - 1)
        part = data[first : last + 1]
        self.send_response(206 if found else 200)
        if self.server.etags:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(part)))
        if found:
            end = first + len(part) - 1
            self.send_header("Content-Range", f"bytes {first}-{end}/{len(data)}")
        self.end_headers()
        if cut:
            part = part[: len(part) // 2]
        with self.server.lock:  # before the answer: its reader may compare at once
            self.server.sent += len(part)
        with contextlib.suppress(OSError):
            self.wfile.write(part)
        if cut:
            self.close_connection = True


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[RangeServer]:
    """Run a server for a folder."""
    with RangeServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
