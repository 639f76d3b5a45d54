"""The small client for S3: it signs and reads as the SDK does, and leaves what is unclear to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from resize_pos.api import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.io.remote_path import place
from resize_pos.containers.remote import pace, store
from resize_pos.containers.remote.part_reader import PartReader
from resize_pos.containers.remote.s3_answers import Refused
from resize_pos.containers.remote.s3_client import PlainClient, Unreachable
from resize_pos.containers.remote.s3_settings import PlainSettings, plain_settings, usual_bucket
from resize_pos.containers.remote.s3_signature import quoted_path, quoted_query, signed
from resize_pos.containers.remote.s3_store import S3Store
from resize_pos.containers.remote.traffic import traffic
from resize_pos.core.errors import ContainerError
from tests.support.builders import vit, write_safetensors
from tests.support.object_stores import ObjectServer, moto

pytest.importorskip("boto3")

AWKWARD = ["a b", "a+b", "50%", "%41", "ä/ö", "a//b", "~-._!*'()", "x&y=z?", "#", '"quoted"']
ALL = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


def settings(server: str = "http://127.0.0.1:9000", token: str = "") -> PlainSettings:
    return PlainSettings(server, "eu-west-3", "key", "secret", token, "")


def test_variables_that_state_everything() -> None:
    found = plain_settings({**ALL, "AWS_SESSION_TOKEN": "token", "AWS_CA_BUNDLE": "ca.pem"})
    assert found == PlainSettings(
        "http://127.0.0.1:9000", "us-east-1", "key", "secret", "token", "ca.pem"
    )
    special = plain_settings({**ALL, "AWS_ENDPOINT_URL_S3": "https://store.example/"})
    assert special is not None and special.server == "https://store.example"


@pytest.mark.parametrize(
    "other",
    [
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_SECRET_ACCESS_KEY": "two\nlines"},
        {"AWS_DEFAULT_REGION": ""},
        {"AWS_ENDPOINT_URL": ""},
        {"AWS_ENDPOINT_URL": "127.0.0.1:9000"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/below"},
        {"AWS_ENDPOINT_URL": "http://user@127.0.0.1:9000"},
        {"AWS_ENDPOINT_URL": "https://s3.eu-west-3.amazonaws.com"},
        {"AWS_PROFILE": "other"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        {"https_proxy": "http://proxy:3128"},
        {"HTTP_PROXY": "http://proxy:3128"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
    ],
)
def test_the_sdk_decides_what_variables_leave_open(other: dict[str, str]) -> None:
    assert plain_settings(ALL) is not None
    assert plain_settings({**ALL, **other}) is None


def test_a_home_with_settings_of_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    without = {name: value for name, value in ALL.items() if not name.endswith("_FILE")}
    assert plain_settings(without) is not None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    assert plain_settings(without) is None


def test_buckets_that_need_the_rules_of_the_sdk() -> None:
    assert usual_bucket("zoo") and usual_bucket("my.models-384")
    for name in ("arn:aws:s3:eu-west-3:1:accesspoint", "zoo--use1-az4--x-s3", "a b", "z", "-zoo"):
        assert not usual_bucket(name)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3:///vit.safetensors", "names no bucket"),
        ("s3://", "names no bucket"),
        ("s3://zo o/vit.safetensors", "zo o cannot be the name of a bucket"),
    ],
)
def test_an_address_without_a_bucket(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ALL.items():
        monkeypatch.setenv(name, value)
    store.disconnect()
    with pytest.raises(ContainerError, match=words):
        inspect_checkpoint(address)
    store.disconnect()


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("token", ["", "a/token+of=some"])
def test_it_signs_as_the_sdk_does(name: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime

    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    now = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now, raising=True)
    body, query = b"some bytes", {"uploadId": name, "partNumber": "7", "uploads": ""}
    headers = {"Range": "bytes=0-9", "x-amz-copy-source": quoted_path(f"zoo/{name}")}
    given = settings(token=token)
    path = quoted_path(f"/zoo/{name}")
    theirs = AWSRequest(
        method="PUT",
        url=f"{given.server}{path}?{quoted_query(query)}",
        data=body,
        headers={k: v for k, v in headers.items() if k.startswith("x-amz")},
    )
    theirs.context["payload_signing_enabled"] = True
    keys = Credentials(given.key, given.secret, token or None)
    botocore.auth.S3SigV4Auth(keys, "s3", given.region).add_auth(theirs)
    ours = signed(
        given,
        ("PUT", path, quoted_query(query)),
        {k: v for k, v in headers.items() if k.startswith("x-amz")},
        [memoryview(body)[:4], memoryview(body)[4:]],
        now.timestamp(),
    )
    assert ours["Authorization"] == theirs.headers["Authorization"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with moto(tmp_path_factory.mktemp("moto")) as running:
        running.client().create_bucket(Bucket="zoo")
        yield running


@pytest.fixture
def plain(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlainClient]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    store.disconnect()
    found = plain_settings(server.environment)
    assert found is not None
    client = PlainClient(found)
    yield client
    client.close()
    store.disconnect()


@pytest.mark.parametrize("key", AWKWARD)
def test_it_answers_as_the_sdk_does(server: ObjectServer, plain: PlainClient, key: str) -> None:
    theirs = server.client()
    data = np.arange(3_000_000, dtype="<u2").tobytes()
    where = {"Bucket": "zoo", "Key": f"awkward/{key}"}
    etag = plain.put_object(**where, Body=data, IfNoneMatch="*")["ETag"]
    for name in ("ETag", "ContentLength", "LastModified"):
        assert plain.head_object(**where)[name] == theirs.head_object(**where)[name]
    found = plain.get_object(**where, Range="bytes=7-99", IfMatch=etag)
    assert found["ContentRange"] == f"bytes 7-99/{len(data)}"
    assert found["Body"].read() == data[7:100]
    upload = plain.create_multipart_upload(**where)["UploadId"]
    pending = plain.list_multipart_uploads(Bucket="zoo", Prefix=where["Key"])["Uploads"]
    assert [(one["Key"], one["UploadId"]) for one in pending] == [(where["Key"], upload)]
    assert pending[0]["Initiated"].tzinfo is not None
    views = [memoryview(data)[:5], memoryview(data)[5:]]
    first = plain.upload_part(**where, UploadId=upload, PartNumber=1, Body=PartReader(views))
    second = plain.upload_part_copy(
        **where,
        UploadId=upload,
        PartNumber=2,
        CopySource=where,
        CopySourceRange="bytes=1-10",
        CopySourceIfMatch=etag,
    )
    parts = [
        {"PartNumber": 1, "ETag": first["ETag"]},
        {"PartNumber": 2, "ETag": second["CopyPartResult"]["ETag"]},
    ]
    plain.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    assert theirs.get_object(**where)["Body"].read() == data + data[1:11]
    listed = plain.list_objects_v2(Bucket="zoo", Prefix=where["Key"])
    same = theirs.list_objects_v2(Bucket="zoo", Prefix=where["Key"])
    for name in ("Key", "Size", "ETag", "LastModified"):
        assert [o[name] for o in listed["Contents"]] == [o[name] for o in same["Contents"]]
    plain.delete_object(**where)
    with pytest.raises(Refused, match="404"):
        plain.head_object(**where)
    with pytest.raises(Refused, match="NoSuchKey"):
        plain.get_object(**where)


def test_it_lists_every_page(server: ObjectServer, plain: PlainClient) -> None:
    names = [f"pages/{number}/x" for number in range(7)]
    for name in names:
        server.client().put_object(Bucket="zoo", Key=name, Body=b"")
    pages = list(
        plain.get_paginator("list_objects_v2").paginate(Bucket="zoo", Prefix="pages/", MaxKeys=3)
    )
    assert [one["Key"] for page in pages for one in page["Contents"]] == names
    folders = plain.list_objects_v2(Bucket="zoo", Prefix="pages/", Delimiter="/")
    assert [one["Prefix"] for one in folders["CommonPrefixes"]] == [f"pages/{n}/" for n in range(7)]
    with pytest.raises(AttributeError):
        plain.create_bucket(Bucket="zoo")


@pytest.mark.parametrize("other", [{}, {"AWS_DEFAULTS_MODE": "legacy"}])
def test_both_clients_write_the_same(
    server: ObjectServer,
    plain: PlainClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: dict[str, str],
) -> None:
    del plain
    for name, value in other.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = place("s3://zoo/vit.safetensors")
    connected = store.store_of(source)  # type: ignore[arg-type]
    assert isinstance(connected, S3Store)
    assert isinstance(connected.client(source), PlainClient) is not bool(other)  # type: ignore[arg-type]
    tensors = vit(6, 9)
    tensors["rest.weight"] = np.arange(3 << 20, dtype="<u4").reshape(64, -1)
    local = write_safetensors(tmp_path / "vit.safetensors", tensors)
    server.client().upload_file(str(local), "zoo", "vit.safetensors")
    server.client().delete_object(Bucket="zoo", Key="out.safetensors")
    fits: dict[str, Any] = {"from_grid": "6x9", "to_grid": "8x12"}
    done = resize_checkpoint(str(source), output="s3://zoo/out.safetensors", **fits)
    assert done.traffic is not None and done.traffic.copied > 0
    resize_checkpoint(local, output=tmp_path / "out.safetensors", **fits)
    found = server.client().get_object(Bucket="zoo", Key="out.safetensors")["Body"].read()
    assert found == (tmp_path / "out.safetensors").read_bytes()


Answering = Callable[[socket.socket, int], None]


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answering], PlainClient]]:
    """Start a server that answers each connection as a test says."""
    monkeypatch.setattr(store, "pause", lambda *_: None)
    listening = socket.create_server(("127.0.0.1", 0))
    clients = [PlainClient(settings(f"http://127.0.0.1:{listening.getsockname()[1]}"))]

    def start(answer: Answering) -> PlainClient:
        def serve() -> None:
            for number in range(100):
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    answer(connection, number)

        threading.Thread(target=serve, daemon=True).start()
        return clients[0]

    yield start
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    clients[0].close()


def told(connection: socket.socket, *answers: bytes) -> None:
    """Read a request before each answer; then close."""
    for answer in answers:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 16)
        connection.sendall(answer)


def answered(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


WHERE = {"Bucket": "zoo", "Key": "vit"}


def test_a_busy_store_is_asked_again(canned: Callable[[Answering], PlainClient]) -> None:
    numbers: list[int] = []

    def answer(connection: socket.socket, number: int) -> None:
        numbers.append(number)
        busy = answered("503 Slow", b"<Error><Code>SlowDown</Code></Error>", "Connection: close")
        told(connection, busy if number < 2 else answered("200 OK", b"", 'ETag: "x"'))

    assert canned(answer).head_object(**WHERE)["ETag"] == '"x"'
    assert numbers == [0, 1, 2]


def test_a_copy_that_fails_late_is_asked_again(
    canned: Callable[[Answering], PlainClient],
) -> None:
    def answer(connection: socket.socket, number: int) -> None:
        late = b"\n  <Error><Code>InternalError</Code><Message>No.</Message></Error>"
        told(connection, answered("200 OK", late))

    with pytest.raises(Refused, match="InternalError"):
        canned(answer).upload_part_copy(**WHERE, UploadId="u", PartNumber=1, CopySource=WHERE)


def test_a_connection_that_the_server_has_closed_is_not_used(
    canned: Callable[[Answering], PlainClient],
) -> None:
    client = canned(lambda connection, _: told(connection, answered("200 OK")))
    before = traffic().requests
    for _ in range(3):
        client.head_object(**WHERE)  # the server closes it after each answer, without saying so
        threading.Event().wait(0.05)
    assert traffic().requests - before == 3  # none was sent in vain


def test_a_refusal_before_everything_was_sent(
    canned: Callable[[Answering], PlainClient],
) -> None:
    def answer(connection: socket.socket, number: int) -> None:
        refusal = b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"
        told(connection, answered("403 Forbidden", refusal, "Connection: close"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    with pytest.raises(Refused) as raised:
        canned(answer).put_object(**WHERE, Body=bytes(8 << 20))
    assert raised.value.response["Error"] == {"Code": "AccessDenied", "Message": "No."}
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_store_that_closes_every_connection(
    canned: Callable[[Answering], PlainClient],
) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
        canned(lambda *_: None).head_object(**WHERE)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answered("200 OK", b"<html>sign in</html"), "wrong answer: it is not XML"),
        (answered("200 OK", b'<?xml version="1.0" encoding="none"?><a/>'), "it is not XML"),
        (answered("302 Found", b"", "Location: http://elsewhere/"), "refused: 302"),
        (answered("418 I'm a teapot", b"no"), "refused: 418 .418.: I'm a teapot"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n<short/>", "cannot be reached"),
        (b"nonsense\r\n\r\n", "cannot be reached"),
    ],
)
def test_wrong_answers(
    canned: Callable[[Answering], PlainClient],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
    words: str,
) -> None:
    client = canned(lambda connection, _: told(connection, answer))
    monkeypatch.setattr(S3Store, "client", lambda *_: client)
    path: Any = place("s3://zoo/folder")
    with pytest.raises(ContainerError, match=words):
        S3Store("s3").page(path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'HTTP/1.1 200 OK\r\nETag: "x"\r\nConnection: close\r\n\r\nabc', "how long"),
        (answered("206 Partial", b"abc", 'ETag: "x"', "Content-Range: bytes 5-7/9"), "from 5 on"),
    ],
)
def test_an_object_that_is_badly_described(
    canned: Callable[[Answering], PlainClient],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
    words: str,
) -> None:
    client = canned(lambda connection, _: told(connection, answer))
    monkeypatch.setattr(S3Store, "client", lambda *_: client)
    path: Any = place("s3://zoo/vit")
    with pytest.raises(ContainerError, match=words):
        S3Store("s3").first(path, 3)


def test_a_range_without_its_place(
    canned: Callable[[Answering], PlainClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = canned(
        lambda connection, _: told(connection, answered("206 Partial", b"abc", 'ETag: "x"'))
    )
    monkeypatch.setattr(S3Store, "client", lambda *_: client)
    path: Any = place("s3://zoo/vit")
    with pytest.raises(ContainerError, match="which bytes it sent"):
        S3Store("s3").read(path, store.ObjectInfo(9, '"x"'), 4, 3)


def test_headers_that_only_drip_are_given_up(
    canned: Callable[[Answering], PlainClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 10_000, 20))  # each look at the clock is 20 seconds after the last one
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: next(times)))

    def answer(connection: socket.socket, _: int) -> None:
        with contextlib.suppress(OSError):
            told(connection, b"HTTP/1.1 200 OK\r\n")
            while True:  # each read returns what has come, and that is one more header
                threading.Event().wait(0.01)
                connection.sendall(b"X-Wait: a\r\n")

    with pytest.raises(Unreachable, match="too slow"):
        canned(answer).head_object(**WHERE)


def certificate(folder: Path) -> Path:
    """Make a certificate for this machine, in one file with its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "store")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain_key = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / "store.pem"
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, *plain_key))
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_a_secure_connection_is_checked_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    import ssl

    monkeypatch.setattr(store, "pause", lambda *_: None)
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    connections: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for number in range(100):
                with contextlib.suppress(OSError):
                    connection, _ = listening.accept()
                    with context.wrap_socket(connection, server_side=True) as secure:
                        connections.append(number)
                        told(secure, *[answered("200 OK", b"", 'ETag: "x"')] * 3)

        threading.Thread(target=serve, daemon=True).start()
        server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        authorities = str(path) if trusted else ""
        client = PlainClient(PlainSettings(server, "eu-west-3", "k", "s", "", authorities))
        if trusted:
            for _ in range(3):
                assert client.head_object(**WHERE)["ETag"] == '"x"'
            assert connections == [0]
        else:
            with pytest.raises(Unreachable, match=r"CERTIFICATE_VERIFY_FAILED|SSLCert"):
                client.head_object(**WHERE)
            assert connections == []
        client.close()
        listening.shutdown(socket.SHUT_RDWR)
