"""Stores and web servers that describe their answers badly, or that never finish one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from resize_pos import inspect_checkpoint
from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.containers.remote import pace, store
from resize_pos.containers.remote.s3_store import S3Store
from resize_pos.core.errors import ContainerError

Answering = Callable[[socket.socket], None]


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answering], str]]:
    """Start a server that answers each connection as a test says; S3 is that server, too."""
    monkeypatch.setattr(store, "pause", lambda *_: None)
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    state = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
    for name, value in {**state, "DEFAULT_REGION": "eu-west-3"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    def start(answer: Answering) -> str:
        def serve() -> None:
            for _ in range(100):
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        return address

    yield start
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    store.disconnect()


def told(connection: socket.socket, answer: bytes) -> None:
    """Read a request, then answer."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1 << 16)
    connection.sendall(answer)


def partial(*headers: str) -> bytes:
    lines = ["HTTP/1.1 206 Partial", "Content-Length: 3", 'ETag: "x"', *headers]
    return "\r\n".join([*lines, "", ""]).encode() + b"abc"


def object_in_store() -> RemotePath:
    found = place("s3://zoo/vit")
    assert isinstance(found, RemotePath)
    return found


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'HTTP/1.1 200 OK\r\nETag: "x"\r\nConnection: close\r\n\r\nabc', "how long"),
        (partial("Content-Range: bytes 5-7/9"), "from 5 on"),
    ],
)
def test_an_object_that_is_badly_described(
    canned: Callable[[Answering], str], answer: bytes, words: str
) -> None:
    canned(lambda connection: told(connection, answer))
    with contextlib.closing(S3Store("s3")) as s3, pytest.raises(ContainerError, match=words):
        s3.first(object_in_store(), 3)


def test_a_range_without_its_place(canned: Callable[[Answering], str]) -> None:
    canned(lambda connection: told(connection, partial()))
    info = store.ObjectInfo(9, '"x"')
    with contextlib.closing(S3Store("s3")) as s3:
        assert s3.read(object_in_store(), info, 0, 3) == b"abc"
        with pytest.raises(ContainerError, match="which bytes it sent"):
            s3.read(object_in_store(), info, 4, 3)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3:///vit.safetensors", "names no bucket"),
        ("s3://", "names no bucket"),
        ("s3://zo o/vit.safetensors", "zo o cannot be the name of a bucket"),
    ],
)
def test_an_address_without_a_bucket(
    address: str, words: str, canned: Callable[[Answering], str]
) -> None:
    with pytest.raises(ContainerError, match=words):
        inspect_checkpoint(address)


def test_headers_that_only_drip_are_given_up(
    canned: Callable[[Answering], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10_000, 20))  # each look at the clock is 20 seconds after the last one
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: next(times)))

    def drip(connection: socket.socket) -> Any:
        with contextlib.suppress(OSError):
            told(connection, b"HTTP/1.1 200 OK\r\n")
            while True:  # each read returns what has come, and that is one more header
                threading.Event().wait(0.01)
                connection.sendall(b"X-Wait: a\r\n")

    with pytest.raises(ContainerError, match="too slow"):
        inspect_checkpoint(f"{canned(drip)}/vit.safetensors")
