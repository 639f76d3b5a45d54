"""Servers that lie: each is an error of ours in little memory, and nothing is written."""

from __future__ import annotations

import contextlib
import re
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos.api import resize_checkpoint
from resize_pos.containers.remote import store
from resize_pos.core.errors import ResizePosError
from tests.support.builders import vit, write_safetensors

LENGTH = 3 << 19  # bytes of weights: more than the first request reads
ENDLESS = 64 << 20  # bytes after which a server that never stops is cut off

Answer = tuple[int, Mapping[str, str], bytes, int]  # status, headers, content, how often


class LyingServer(ThreadingHTTPServer):
    """Serves one file, each time as `lie` wants it."""

    daemon_threads = True

    def __init__(self, data: bytes, lie: Callable[[Answer, int], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.lie, self.asked = data, lie, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/vit.safetensors"

    def handle_error(self, *_: object) -> None:
        """Keep quiet when a client hangs up."""


class _Handler(BaseHTTPRequestHandler):
    server: LyingServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        if "vit.safetensors" not in self.path:
            self.send_error(404)
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert found
        first, last = int(found[1]), min(int(found[2]), len(server.data) - 1)
        headers = {
            "ETag": '"v1"',
            "Content-Range": f"bytes {first}-{last}/{len(server.data)}",
            "Content-Length": str(last - first + 1),
        }
        server.asked += 1
        honest: Answer = (206, headers, server.data[first : last + 1], 1)
        status, headers, content, times = server.lie(honest, server.asked)  # type: ignore[assignment]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(times):
                self.wfile.write(content)
        self.close_connection = True


@contextlib.contextmanager
def serving(data: bytes, lie: Callable[[Answer, int], Answer]) -> Iterator[LyingServer]:
    with LyingServer(data, lie) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def with_headers(answer: Answer, **changed: str) -> Answer:
    names = {key.replace("_", "-"): value for key, value in changed.items()}
    return answer[0], {**answer[1], **names}, answer[2], answer[3]


def other_range(answer: Answer, number: int) -> Answer:
    """Send the bytes from 0 on, and say so."""
    if number == 1:
        return answer
    end = len(answer[2]) - 1
    total = answer[1]["Content-Range"].rpartition("/")[2]
    return with_headers(answer, Content_Range=f"bytes 0-{end}/{total}")


def other_size(answer: Answer, number: int) -> Answer:
    stated = answer[1]["Content-Range"].rpartition("/")[0]
    return answer if number == 1 else with_headers(answer, Content_Range=f"{stated}/77")


def ranges_ignored(answer: Answer, number: int) -> Answer:
    """Answer the first request by range, and all others with 200."""
    return answer if number == 1 else (200, answer[1], answer[2], 1)


def short_body(answer: Answer, number: int) -> Answer:
    del number
    kept = len(answer[2]) // 2 if len(answer[2]) > LENGTH // 4 else len(answer[2])
    return (*answer[:2], answer[2][:kept], 1)


def one_byte_at_a_time(answer: Answer, number: int) -> Answer:
    return (*answer[:2], answer[2][:1] if number > 1 else answer[2], 1)


def empty_body(answer: Answer, number: int) -> Answer:
    del number
    return (*answer[:2], b"", 1)


def other_version(answer: Answer, number: int) -> Answer:
    return with_headers(answer, ETag=f'"v{number}"')


def redirect_to_itself(answer: Answer, number: int) -> Answer:
    del answer, number
    return 302, {"Location": "/vit.safetensors", "Content-Length": "0"}, b"", 1


def endless_redirects(answer: Answer, number: int) -> Answer:
    del answer
    return 302, {"Location": f"/{number}/vit.safetensors", "Content-Length": "0"}, b"", 1


def redirect_to_a_file(answer: Answer, number: int) -> Answer:
    del answer, number
    return 302, {"Location": "file:///etc/passwd", "Content-Length": "0"}, b"", 1


def redirect_to_ftp(answer: Answer, number: int) -> Answer:
    del answer, number
    return 302, {"Location": "ftp://127.0.0.1:1/x", "Content-Length": "0"}, b"", 1


def a_length_of_many_digits(answer: Answer, number: int) -> Answer:
    del number
    return with_headers(answer, Content_Range=f"bytes 0-9/{'9' * 5000}")


def a_length_in_other_digits(answer: Answer, number: int) -> Answer:
    del number
    return with_headers(answer, Content_Range="bytes 0-9/\u0663".encode().decode("latin-1"))


def a_length_beyond_any_disk(answer: Answer, number: int) -> Answer:
    stated = answer[1]["Content-Range"].rpartition("/")[0]
    del number
    return with_headers(answer, Content_Range=f"{stated}/{10**18 - 1}")


def no_range_stated(answer: Answer, number: int) -> Answer:
    return answer if number == 1 else with_headers(answer, Content_Range="")


def no_length(answer: Answer, number: int) -> Answer:
    del number
    return 200, {"ETag": '"v1"'}, answer[2], 1


def another_status(answer: Answer, number: int) -> Answer:
    del number
    return (204, *answer[1:])


def a_page_instead(answer: Answer, number: int) -> Answer:
    del answer, number
    page = b"<!DOCTYPE html><title>Log in</title>" * 50
    return 200, {"Content-Length": str(len(page))}, page, 1


LIES: dict[str, tuple[Callable[[Answer, int], Answer], str]] = {
    "other range": (other_range, "and sent those from 0 on"),
    "other size": (other_size, "changed since it was opened"),
    "ranges ignored": (ranges_ignored, "does not read ranges"),
    "one byte at a time": (one_byte_at_a_time, "closed early"),
    "empty body": (empty_body, "closed early"),
    "other version": (other_version, "changed since it was opened"),
    "redirect to itself": (redirect_to_itself, "redirects in a circle"),
    "endless redirects": (endless_redirects, "redirects in a circle"),
    "redirect to a file": (redirect_to_a_file, "no web address"),
    "redirect to ftp": (redirect_to_ftp, "no web address"),
    "many digits": (a_length_of_many_digits, "does not say how long"),
    "other digits": (a_length_in_other_digits, "does not say how long"),
    "beyond any disk": (a_length_beyond_any_disk, "vit.safetensors"),
    "no range stated": (no_range_stated, "does not say which bytes"),
    "no length": (no_length, "does not say how long"),
    "another status": (another_status, "the server answered 204"),
    "a page": (a_page_instead, "vit.safetensors"),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(store, "pause", lambda *_: None)
    monkeypatch.setattr("resize_pos.containers.remote.http_store.pause", lambda *_: None)
    tensors = vit(6, 9) | {"blocks.0.mlp.weight": np.ones(LENGTH // 4, np.float32)}
    path = write_safetensors(tmp_path / "vit.safetensors", tensors, {"format": "pt"})
    content = path.read_bytes()
    path.unlink()
    return content


def convert(server: LyingServer, folder: Path) -> Any:
    return resize_checkpoint(
        server.url, output=folder / "out.safetensors", from_grid="6x9", to_grid="4x7"
    )


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_is_an_error_in_words(name: str, data: bytes, tmp_path: Path) -> None:
    lie, words = LIES[name]
    with serving(data, lie) as server:
        tracemalloc.start()
        try:
            with pytest.raises(ResizePosError, match=re.escape(words)):
                convert(server, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < (64 << 20)
        finally:
            tracemalloc.stop()
        assert server.asked < 100
    assert not list(tmp_path.iterdir())


def endless(answer: Answer, number: int) -> Answer:
    """Go on sending after the end of what was asked for."""
    del number
    return (*answer[:2], answer[2], 1 + ENDLESS // len(answer[2]))


@pytest.mark.parametrize("lie", [short_body, endless], ids=["short", "endless"])
def test_what_comes_in_pieces_or_too_long_is_read_as_it_should(
    lie: Callable[[Answer, int], Answer], data: bytes, tmp_path: Path
) -> None:
    with serving(data, lambda answer, _: answer) as server:
        convert(server, tmp_path)
    expected = (tmp_path / "out.safetensors").read_bytes()
    (tmp_path / "out.safetensors").unlink()
    with serving(data, lie) as server:
        tracemalloc.start()
        try:
            convert(server, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < (64 << 20)
        finally:
            tracemalloc.stop()
    found = (tmp_path / "out.safetensors").read_bytes()
    assert found[-LENGTH:] == expected[-LENGTH:] and len(found) == len(expected)


class Clock:
    """A clock that passes ten seconds whenever it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 10
        return self.now


@pytest.mark.parametrize("number", [1, 2], ids=["from the beginning", "after the header"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    number: int, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dripping(answer: Answer, asked: int) -> Answer:
        return answer if asked < number else (*answer[:2], answer[2][:1], len(answer[2]))

    with serving(data, dripping) as server:
        monkeypatch.setattr("resize_pos.containers.remote.pace.time", Clock())
        monkeypatch.setattr(_Handler, "wbufsize", 0)
        with pytest.raises(ResizePosError, match=r"too slow: \d+ bytes came in \d+ seconds"):
            convert(server, tmp_path)
        assert server.asked < number + 4  # two threads read, and each tries one more connection
    assert not list(tmp_path.iterdir())
