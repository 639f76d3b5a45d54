"""Checkpoints in S3: SeaweedFS enforces the rules of the protocol; others know fewer of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from resize_pos.api import inspect_checkpoint, resize_checkpoint, verify_checkpoint
from resize_pos.containers.remote import store
from resize_pos.core.errors import ContainerError, OutputError, ResizePosError
from resize_pos.report.report import Report
from tests.support.builders import vit, write_safetensors
from tests.support.faulty_proxy import Fault, FaultyProxy, faulty
from tests.support.object_stores import (
    READER,
    ObjectServer,
    moto,
    program,
    rclone,
    seaweed,
)

pytest.importorskip("boto3")

MIB = 1 << 20
STORES: dict[str, tuple[str | None, Callable[[Path], AbstractContextManager[ObjectServer]]]] = {
    "seaweedfs": ("weed", seaweed),
    "moto": (None, moto),
    "rclone": ("rclone", rclone),
}
COPIES = ("seaweedfs", "moto")  # the stores that copy parts
FITS = {"from_grid": "6x9", "to_grid": "8x12"}


@pytest.fixture(scope="session", params=STORES)
def any_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ObjectServer]]:
    needed, start = STORES[request.param]
    if needed is not None and program(needed) is None:
        pytest.skip(f"the program {needed} is not installed")
    with start(tmp_path_factory.mktemp(request.param)) as server:
        yield request.param, server


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    if program("weed") is None:
        pytest.skip("the program weed is not installed")
    with seaweed(tmp_path_factory.mktemp("real")) as server:
        yield server


BUCKET = "zoo"


class Zoo:
    """A fresh folder of a store, which the program is told of."""

    def __init__(self, server: ObjectServer, prefix: str) -> None:
        self.client = server.client()
        self.prefix = prefix
        if BUCKET not in [one["Name"] for one in self.client.list_buckets()["Buckets"]]:
            self.client.create_bucket(Bucket=BUCKET)

    def url(self, key: str) -> str:
        return f"s3://{BUCKET}/{self.prefix}{key}"

    def put(self, key: str, content: Path | bytes) -> str:
        data = content if isinstance(content, bytes) else content.read_bytes()
        self.client.put_object(Bucket=BUCKET, Key=self.prefix + key, Body=data)
        return self.url(key)

    def get(self, key: str) -> bytes:
        found = self.client.get_object(Bucket=BUCKET, Key=self.prefix + key)
        data: bytes = found["Body"].read()
        return data

    @property
    def objects(self) -> dict[str, Any]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=self.prefix)
        return {one["Key"].removeprefix(self.prefix): one for one in found.get("Contents", ())}

    @property
    def keys(self) -> list[str]:
        return sorted(self.objects)

    @property
    def uploads(self) -> list[Any]:
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=self.prefix)
        return [one for one in found.get("Uploads") or () if one["Key"].startswith(self.prefix)]


_numbers = iter(range(1_000_000))


def make_zoo(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zoo:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "pause", lambda *_: None)
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda *_: None))
    store.disconnect()
    return Zoo(server, f"test-{os.getpid()}-{next(_numbers)}/")


@pytest.fixture
def zoo(
    any_server: tuple[str, ObjectServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Zoo]:
    made_zoo = make_zoo(any_server[1], tmp_path, monkeypatch)
    yield made_zoo
    made_zoo.client.close()
    store.disconnect()


@pytest.fixture
def real(
    real_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Zoo]:
    made_zoo = make_zoo(real_server, tmp_path, monkeypatch)
    yield made_zoo
    made_zoo.client.close()
    store.disconnect()


@pytest.fixture
def proxy(
    real: Zoo, real_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyProxy]:
    """SeaweedFS behind a proxy that the program uses, and the test's own client does not."""
    with faulty(real_server.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        store.disconnect()
        yield running


def tensors(before: int, after: int) -> dict[str, Any]:
    """Make a model with so many MiB of weights before and after its table."""
    rng = np.random.default_rng(1)
    weights = {
        f"{name}.weight": rng.integers(0, 255, mib * MIB, np.uint8)
        for name, mib in (("blocks.0.mlp", before), ("head", after))
    }
    first = {"blocks.0.mlp.weight": weights["blocks.0.mlp.weight"]}
    return first | vit(6, 9) | {"head.weight": weights["head.weight"]}


def made(folder: Path, name: str, before: int = 12, after: int = 7) -> Path:
    path = folder / name
    values = tensors(before, after)
    if path.suffix == ".safetensors":
        return write_safetensors(path, values, {"format": "pt"})
    if path.suffix == ".npz":
        np.savez(path, **values)
        return path
    torch.save({n: torch.from_numpy(t) for n, t in values.items()}, path)
    return path


def resized(source: str | Path, output: str | Path, **options: Any) -> Report:
    return resize_checkpoint(source, output=output, **{**FITS, **options})


def expected(source: Path) -> bytes:
    target = source.with_name(f"expected-{source.name}")
    resized(source, target, force=True)
    return target.read_bytes()


@pytest.mark.parametrize("name", ["vit.safetensors", "vit.pth", "vit.npz"])
def test_the_store_copies_what_stays(
    zoo: Zoo, any_server: tuple[str, ObjectServer], name: str, tmp_path: Path
) -> None:
    source = made(tmp_path, name)
    report = resized(zoo.put(name, source), zoo.url(f"wide-{name}"))
    assert zoo.get(f"wide-{name}") == expected(source)
    assert zoo.get(name) == source.read_bytes()
    assert not zoo.uploads
    used = report.traffic
    assert used is not None
    if any_server[0] in COPIES:
        assert used.copied > 5 * MIB
        assert used.received + used.sent < source.stat().st_size * 1.5
        assert not used.notes
    else:
        assert used.copied == 0
        assert "went through this machine" in used.notes[0]


def test_a_store_that_refuses_to_copy_gets_all_bytes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto(tmp_path_factory.mktemp("moto")) as server, faulty(server.endpoint) as running:
        stored = make_zoo(server, tmp_path, monkeypatch)
        source = made(tmp_path, "vit.safetensors")
        url = stored.put("vit.safetensors", source)
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        for status in (405, 501):
            running.copies = status
            report = resized(url, stored.url(f"{status}.safetensors"))
            assert stored.get(f"{status}.safetensors") == expected(source)
            assert not stored.uploads
            assert report.traffic is not None
            (note,) = report.traffic.notes
            assert "does not copy parts" in note and "through this machine" in note
        stored.client.close()
        store.disconnect()


def test_between_this_disk_and_a_store(zoo: Zoo, tmp_path: Path) -> None:
    source = made(tmp_path, "vit.safetensors")
    resized(source, zoo.url("up.safetensors"))
    assert zoo.get("up.safetensors") == expected(source)
    down = tmp_path / "down.safetensors"
    resized(zoo.put("vit.safetensors", source), down)
    assert down.read_bytes() == expected(source)
    verified = verify_checkpoint(
        zoo.url("up.safetensors"), zoo.url("vit.safetensors"), from_grid="6x9", to_grid="8x12"
    )
    assert verified.exit_code() == 0


def test_a_small_file_is_put_with_one_request(zoo: Zoo, tmp_path: Path) -> None:
    source = made(tmp_path, "vit.safetensors", 0, 0)
    resized(zoo.put("vit.safetensors", source), zoo.url("wide.safetensors"))
    assert zoo.get("wide.safetensors") == expected(source)


def test_an_existing_target_is_refused_and_replaced_on_request(zoo: Zoo, tmp_path: Path) -> None:
    source = made(tmp_path, "vit.safetensors")
    url = zoo.put("vit.safetensors", source)
    zoo.put("old.safetensors", made(tmp_path, "other.safetensors", 1, 1))
    before = zoo.get("old.safetensors")
    with pytest.raises(OutputError, match="already exists"):
        resized(url, zoo.url("old.safetensors"))
    assert zoo.get("old.safetensors") == before
    resized(url, zoo.url("old.safetensors"), force=True)
    assert zoo.get("old.safetensors") == expected(source)
    with pytest.raises(OutputError, match="the target is the source"):
        resized(url, url, force=True)


def test_a_folder_is_written_with_its_index_and_config_last(zoo: Zoo, tmp_path: Path) -> None:
    from tests.support.folder_builders import files, save_hf, vit_model

    folder = save_hf(vit_model(), None, tmp_path / "model", max_shard_size="20KB")
    (folder / "sub").mkdir()
    (folder / "sub" / "notes.txt").write_text("kept")
    for name, data in files(folder).items():
        zoo.put(f"model/{name}", data)
    here = tmp_path / "wide"
    resize_checkpoint(folder, to="64x96", output=here)
    resize_checkpoint(zoo.url("model"), to="64x96", output=zoo.url("wide"))
    stored = {key.removeprefix("wide/"): zoo.get(key) for key in zoo.keys if "wide/" in key}
    assert stored == files(here)
    times = {k: one["LastModified"] for k, one in zoo.objects.items() if k.startswith("wide/")}
    assert times["wide/config.json"] == max(times.values())
    with pytest.raises(OutputError, match="already exists"):
        resize_checkpoint(zoo.url("model"), to="64x96", output=zoo.url("wide"), force=True)
    there = tmp_path / "there"
    resize_checkpoint(zoo.url("model"), to="64x96", output=there)
    assert files(there) == files(here)


def test_a_missing_bucket_is_named(
    zoo: Zoo, any_server: tuple[str, ObjectServer], tmp_path: Path
) -> None:
    if any_server[0] == "seaweedfs":
        pytest.skip("SeaweedFS creates a bucket that is written to")
    source = made(tmp_path, "vit.safetensors", 0, 0)
    with pytest.raises(ResizePosError, match="no-such-bucket"):
        resized(source, "s3://no-such-bucket/wide.safetensors")
    with pytest.raises(ResizePosError, match="no-such-bucket"):
        inspect_checkpoint("s3://no-such-bucket/vit.safetensors")


# What follows needs a store that enforces conditions.


def test_a_source_that_changes_is_refused(real: Zoo, proxy: FaultyProxy, tmp_path: Path) -> None:
    source = made(tmp_path, "vit.safetensors")
    url = real.put("vit.safetensors", source)
    other = made(tmp_path, "other.safetensors", 11, 8)

    def replace(number: int, method: str, path: str) -> None:
        if method == "POST" and path.endswith("?uploads"):
            real.put("vit.safetensors", other)

    proxy.fault = replace
    with pytest.raises(ContainerError, match="changed since it was opened"):
        resized(url, real.url("wide.safetensors"))
    assert real.keys == ["vit.safetensors"]
    assert not real.uploads


@pytest.mark.parametrize("force", [False, True])
def test_a_target_that_somebody_else_writes_is_kept(
    real: Zoo, proxy: FaultyProxy, tmp_path: Path, force: bool
) -> None:
    source = made(tmp_path, "vit.safetensors")
    url = real.put("vit.safetensors", source)
    other = made(tmp_path, "other.safetensors", 1, 1)
    if force:
        real.put("wide.safetensors", source)

    def intrude(number: int, method: str, path: str) -> None:
        if method == "POST" and "uploadId=" in path:
            real.put("wide.safetensors", other)

    proxy.fault = intrude
    with pytest.raises(OutputError, match="by another program"):
        resized(url, real.url("wide.safetensors"), force=force)
    assert real.get("wide.safetensors") == other.read_bytes()
    assert not real.uploads


@pytest.mark.parametrize("fault", ["busy", "cut", "drop"])
def test_trouble_that_passes_is_overcome(
    real: Zoo, proxy: FaultyProxy, tmp_path: Path, fault: str
) -> None:
    source = made(tmp_path, "vit.safetensors")
    url = real.put("vit.safetensors", source)
    reads = fault == "cut"  # half an answer to a write would be a lie of the store
    proxy.fault = lambda n, method, _: (
        fault if n % 3 == 0 and (method == "GET" or not reads) else None
    )
    resized(url, real.url("wide.safetensors"))
    assert real.get("wide.safetensors") == expected(source)
    assert not real.uploads


def dying_after(last: int) -> Fault:
    return lambda n, *_: "dead" if n > last else None


def test_a_store_that_dies_leaves_what_was_there(
    real: Zoo, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """At every request in turn: the old object, or the whole new one; uploads are aborted later."""
    source = made(tmp_path, "vit.safetensors")
    old = made(tmp_path, "old.safetensors", 1, 1).read_bytes()
    new = expected(source)
    url = real.put("vit.safetensors", source)
    target = real.url("wide.safetensors")
    ends = []
    for last in range(1, 20):
        real.put("wide.safetensors", tmp_path / "old.safetensors")
        proxy.asked.clear()
        proxy.dead = False
        proxy.fault = dying_after(last)
        try:
            resized(url, target, force=True)
        except ResizePosError:
            ends.append("old")
            assert real.get("wide.safetensors") in (old, new)
        else:
            ends.append("new")
            assert real.get("wide.safetensors") == new
            break
    assert "new" in ends and "old" in ends
    proxy.fault = lambda *_: None
    proxy.dead = False
    resized(url, target, force=True)
    assert real.get("wide.safetensors") == new


KILLED = """
import os, signal, sys
from resize_pos.containers.remote import s3_upload
from resize_pos.cli.app import main
def killed(self, before):
    os.kill(os.getpid(), signal.SIGKILL)
s3_upload.S3Upload.complete = killed
main(sys.argv[1:])
"""


def test_the_next_run_aborts_the_upload_of_a_killed_one(real: Zoo, tmp_path: Path) -> None:
    source = made(tmp_path, "vit.safetensors")
    url, target = real.put("vit.safetensors", source), real.url("wide.safetensors")
    words = [url, "-o", target, "--from-grid", "6x9", "--to-grid", "8x12"]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(real.uploads) == 1
    assert real.keys == ["vit.safetensors"]
    resized(url, target)
    assert real.get("wide.safetensors") == expected(source)
    assert not real.uploads


def test_an_interrupt_leaves_no_upload(
    real: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resize_pos.verify import output_check

    source = made(tmp_path, "vit.safetensors")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(output_check, "check_output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        resized(real.put("vit.safetensors", source), real.url("wide.safetensors"))
    assert real.keys == ["vit.safetensors"]
    assert not real.uploads


def test_wrong_credentials_are_explained(real: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-but-wrong")
    store.disconnect()
    with pytest.raises(ContainerError) as refused:
        inspect_checkpoint(real.url("vit.safetensors"))
    assert "AWS_PROFILE" in (refused.value.hint or "")
    assert "very-secret" not in refused.value.message


def test_who_may_not_list_a_bucket_can_convert(
    real: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(tmp_path, "vit.safetensors")
    real.put("vit.safetensors", source)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
    store.disconnect()
    done = resized(real.url("vit.safetensors"), real.url("wide.safetensors"))
    assert done.traffic is not None
    assert done.traffic.notes == ()  # it does say of each config file that there is none
    assert real.get("wide.safetensors") == expected(source)
    with pytest.raises(OutputError, match=r"another program|already exists"):
        resized(real.url("vit.safetensors"), real.url("wide.safetensors"))
    with pytest.raises(ContainerError, match="refused: AccessDenied"):
        inspect_checkpoint(real.url(""))


@pytest.mark.parametrize(
    ("code", "status", "hint"),
    [
        ("AccessDenied", 403, "AWS_PROFILE"),
        ("InvalidAccessKeyId", 403, "AWS_PROFILE"),
        ("ExpiredToken", 400, "expired"),
        ("RequestTimeTooSkewed", 403, "clock"),
        ("PermanentRedirect", 301, "AWS_DEFAULT_REGION"),
        ("SlowDown", 503, "None"),
    ],
)
def test_a_refusal_says_what_to_do(code: str, status: int, hint: str) -> None:
    from botocore.exceptions import ClientError

    from resize_pos.containers.io.remote_path import RemotePath
    from resize_pos.containers.remote.s3_store import errors

    answer: Any = {
        "Error": {"Code": code, "Message": "No."},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    with (
        pytest.raises(ContainerError, match=rf"zoo/vit: the store refused: {code} ") as raised,
        errors(RemotePath("s3:", "zoo", "vit")),
    ):
        raise ClientError(answer, "GetObject")
    assert hint in str(raised.value.hint)


def test_a_store_that_is_not_there() -> None:
    from botocore.exceptions import EndpointConnectionError

    from resize_pos.containers.io.remote_path import RemotePath
    from resize_pos.containers.remote.s3_store import errors

    with (
        pytest.raises(ContainerError, match="cannot be reached") as raised,
        errors(RemotePath("s3:", "zoo", "vit")),
    ):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9/zoo/vit")
    assert "AWS_ENDPOINT_URL" in str(raised.value.hint)
