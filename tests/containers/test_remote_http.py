"""Checkpoints on a web server: read by range, never more than is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from resize_pos.api import (
    compare_checkpoints,
    inspect_checkpoint,
    resize_checkpoint,
    verify_checkpoint,
)
from resize_pos.cli.app import main
from resize_pos.containers.io.remote_path import RemotePath, place, redacted
from resize_pos.containers.remote import store
from resize_pos.core.errors import ContainerError, OutputError, ResizePosError
from tests.support.builders import flat, vit, write_safetensors
from tests.support.range_server import RangeServer, serving

BIG = 4 << 20  # bytes of weights that nobody needs to read


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setattr(store, "pause", lambda *_: None)
    monkeypatch.setattr("resize_pos.containers.remote.http_store.pause", lambda *_: None)
    folder = tmp_path / "served"
    folder.mkdir()
    tensors = vit(6, 9) | {"blocks.0.mlp.weight": np.ones(BIG // 4, np.float32)}
    write_safetensors(folder / "vit.safetensors", tensors, {"format": "pt"})
    torch.save({n: torch.from_numpy(t) for n, t in tensors.items()}, folder / "vit.pth")
    np.savez(folder / "vit.npz", **tensors)  # type: ignore[arg-type]
    with serving(folder) as running:
        yield running


FORMATS = ("vit.safetensors", "vit.pth", "vit.npz")


@pytest.mark.parametrize("name", FORMATS)
def test_an_inspection_says_the_same_and_reads_little(server: RangeServer, name: str) -> None:
    there = inspect_checkpoint(f"{server.url}/{name}", from_grid="6x9")
    here = inspect_checkpoint(server.folder / name, from_grid="6x9")
    assert there.located.tables == here.located.tables
    assert (there.tensors, there.format) == (here.tensors, here.format)
    assert server.sent < 700_000 < BIG
    assert there.traffic is not None
    assert there.traffic.received == server.sent
    assert there.traffic.requests == len(server.asked)
    # The configs beside it are asked for, too; a web server cannot list them.
    own = [asked for asked in server.asked if name in asked]
    assert len(own) <= (3 if name != "vit.npz" else 12), own


@pytest.mark.parametrize(
    ("grid", "found"), [((16, 16), True), ((8, 32), False)], ids=["square", "rectangle"]
)
def test_only_the_beginning_of_a_large_table_is_read_if_it_tells_enough(
    server: RangeServer, grid: tuple[int, int], found: bool
) -> None:
    """257 rows may be 1 + 16×16. A rectangle contradicts it, and then the whole table is read."""
    rows = flat(*grid, 1408) * np.float32(0.02)  # the norm of a learned table, not of sin-cos
    tensors = vit(4, 4) | {"pos_embed": rows}
    write_safetensors(server.folder / "wide.safetensors", tensors, {"format": "pt"})
    seen = inspect_checkpoint(f"{server.url}/wide.safetensors")
    assert [table.name for table in seen.located.tables] == (["pos_embed"] if found else [])
    assert (server.sent < 1_000_000 < rows.nbytes) if found else (server.sent > rows.nbytes)
    own = [asked for asked in server.asked if "wide" in asked]
    assert len(own) <= 3, own


@pytest.mark.parametrize("name", FORMATS)
def test_a_conversion_to_this_disk_has_the_same_bytes(
    server: RangeServer, name: str, tmp_path: Path
) -> None:
    there, here = tmp_path / f"there-{name}", tmp_path / f"here-{name}"
    options = {"from_grid": "6x9", "to_grid": "8x12"}
    report = resize_checkpoint(f"{server.url}/{name}", output=there, **options)  # type: ignore[arg-type]
    resize_checkpoint(server.folder / name, output=here, **options)  # type: ignore[arg-type]
    assert there.read_bytes() == here.read_bytes()
    assert report.traffic is not None
    assert report.traffic.received == server.sent


def test_the_other_commands_read_a_url(server: RangeServer, tmp_path: Path) -> None:
    url = f"{server.url}/vit.safetensors"
    target = tmp_path / "wide.safetensors"
    resize_checkpoint(url, output=target, from_grid="6x9", to_grid="8x12")
    verified = verify_checkpoint(target, url, from_grid="6x9", to_grid="8x12")
    assert verified.exit_code() == 0
    compared = compare_checkpoints(url, from_grid="6x9", to_grid="8x12")
    for used in (verified.traffic, compared.traffic):
        assert used is not None and used.requests > 1 and used.received > 1000
    assert inspect_checkpoint(url, health=True, from_grid="6x9").health["pos_embed"]
    for words in (["verify", url, "--size", "96x144", "--from-grid", "6x9"], [url, "-n"]):
        more = ["--from-grid", "6x9", "--to-grid", "8x12"] if "-n" in words else []
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        assert ended.value.code == 0


def test_a_fit_says_what_it_read(server: RangeServer, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", f"{server.url}/vit.safetensors", "--size", "96x144", "--from-grid", "6x9"]
    for form in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main([*words, *form])
    lines = capsys.readouterr().out.splitlines()
    assert "traffic: " in lines[1]
    assert json.loads(lines[2])["traffic"]["requests"] * 2 == len(server.asked)


def test_shards_beside_their_index(server: RangeServer) -> None:
    from tests.containers.test_sharded import INDEX, shards

    folder = server.folder / "sharded"
    folder.mkdir()
    shards(folder)
    there = inspect_checkpoint(f"{server.url}/sharded/{INDEX}", from_grid="6x9")
    assert there.tensors == inspect_checkpoint(folder / INDEX, from_grid="6x9").tensors


def test_a_busy_server_is_asked_again(server: RangeServer, tmp_path: Path) -> None:
    server.busy = lambda number: number % 3 == 0
    target = tmp_path / "wide.safetensors"
    resize_checkpoint(
        f"{server.url}/vit.safetensors", output=target, from_grid="6x9", to_grid="8x12"
    )
    assert target.is_file()


def test_a_cut_connection_continues_where_it_stopped(server: RangeServer, tmp_path: Path) -> None:
    here, there = tmp_path / "here.safetensors", tmp_path / "there.safetensors"
    name = "vit.safetensors"
    resize_checkpoint(server.folder / name, output=here, from_grid="6x9", to_grid="8x12")
    server.cut = lambda number: number % 2 == 0
    resize_checkpoint(f"{server.url}/{name}", output=there, from_grid="6x9", to_grid="8x12")
    assert there.read_bytes() == here.read_bytes()


def test_a_server_that_stays_busy_is_given_up(server: RangeServer, tmp_path: Path) -> None:
    server.busy = lambda number: number > 1
    target = tmp_path / "wide.safetensors"
    with pytest.raises(ContainerError, match="503"):
        resize_checkpoint(
            f"{server.url}/vit.safetensors", output=target, from_grid="6x9", to_grid="8x12"
        )
    assert not target.exists()


@pytest.mark.parametrize("etags", [True, False])
def test_a_file_that_changes_meanwhile_is_refused(
    server: RangeServer, tmp_path: Path, etags: bool
) -> None:
    server.etags = etags
    source = server.folder / "vit.safetensors"

    def replace(number: int) -> None:
        if number > 3:
            source.write_bytes(source.read_bytes()[:-4] + (b"abcd" if etags else b"abcdefgh"))

    server.before = replace
    target = tmp_path / "wide.safetensors"
    with pytest.raises(ContainerError, match="changed since it was opened"):
        resize_checkpoint(
            f"{server.url}/vit.safetensors", output=target, from_grid="6x9", to_grid="8x12"
        )
    assert not target.exists()


def test_a_signed_file_does_not_need_the_files_beside_it(
    server: RangeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.secret = lambda address: "?signature=" not in address
    url = f"{server.url}/vit.safetensors"
    size = ["--to-grid", "8x12"]
    for words in (["inspect"], ["compare", *size], ["resize", "-n", *size]):
        with pytest.raises(SystemExit) as ended:
            main([*words, f"{url}?signature=abc", "--from-grid", "6x9"])
        assert ended.value.code == 0
        shown = capsys.readouterr()
        told = " ".join(f"{shown.out} {shown.err}".split())
        assert told.count("config files were not used") == 1
        assert "signature" not in told
    with pytest.raises(SystemExit) as ended:
        main(["inspect", f"{server.url}/vit.pth"])
    assert ended.value.code == 1
    assert "403 Forbidden" in capsys.readouterr().err


def test_a_shard_that_may_not_be_read_is_not_called_missing(server: RangeServer) -> None:
    from tests.containers.test_sharded import INDEX, shards

    shards(server.folder)
    server.secret = lambda address: "?signature=" not in address
    index = f"{server.url}/{INDEX}?signature=abc"
    with pytest.raises(ContainerError, match=r"model-0.*answered 403") as raised:
        inspect_checkpoint(index)
    assert "holds for one file" in str(raised.value.hint)


@pytest.mark.parametrize("url", ["s3://", "http://", "https://"])
def test_an_address_without_a_name(url: str) -> None:
    with pytest.raises(ContainerError, match="names no bucket or server"):
        inspect_checkpoint(url)


def test_a_server_without_ranges_is_refused(server: RangeServer) -> None:
    server.ranges = False
    with pytest.raises(ContainerError, match="does not read ranges"):
        inspect_checkpoint(f"{server.url}/vit.pth", from_grid="6x9")


def test_a_missing_file_is_named(server: RangeServer) -> None:
    with pytest.raises(ContainerError, match=r"none\.safetensors: no such object"):
        inspect_checkpoint(f"{server.url}/none.safetensors")


def test_nothing_is_written_to_a_web_server(server: RangeServer) -> None:
    with pytest.raises(OutputError, match="can only be read"):
        resize_checkpoint(
            f"{server.url}/vit.safetensors",
            output=f"{server.url}/wide.safetensors",
            from_grid="6x9",
            to_grid="8x12",
        )


def test_no_server_at_all() -> None:
    with pytest.raises(ContainerError, match="cannot be reached"):
        inspect_checkpoint("http://127.0.0.1:9/vit.safetensors")


SECRET = "X-Amz-Signature=abc/..//def&token=123"


def test_a_signature_is_used_but_never_shown(
    server: RangeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{server.url.replace('http://', 'http://me:pass@')}/vit.safetensors?{SECRET}"
    reports = [tmp_path / f"report{suffix}" for suffix in (".html", ".md", ".json")]
    words = [url, "--from-grid", "6x9", "--to-grid", "8x12", "-o", str(tmp_path / "o.safetensors")]
    for path in reports:
        words += ["--report", str(path)]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code == 0
    assert f"/vit.safetensors?{SECRET} " in server.asked[0]
    shown = capsys.readouterr()
    assert json.loads(shown.out)["source"] == f"{server.url}/vit.safetensors"
    texts = [shown.out, shown.err, *(path.read_text() for path in reports)]
    with pytest.raises(SystemExit):
        main(["inspect", url.replace("vit.", "none."), "--debug"])
    shown = capsys.readouterr()
    for text in (*texts, shown.out, shown.err):
        assert "abc" not in text
        assert "me:pass" not in text
    assert b"Signature" not in (tmp_path / "o.safetensors").read_bytes()


def test_a_url_is_kept_apart_from_its_secrets() -> None:
    path = place("https://me:pw@host/a/b.safetensors?sig=1#part")
    assert isinstance(path, RemotePath)
    assert (str(path), path.name) == ("https://host/a/b.safetensors", "b.safetensors")
    assert path.secrets == ("me:pw", "sig=1")
    assert redacted("https://me:pw@host/x?sig=1") == "https://***@host/x?***"
    assert redacted("--to=3") == "--to=3"
    import pickle

    again = pickle.loads(pickle.dumps(path))
    assert (again, again.secrets) == (path, path.secrets)


def test_paths_of_this_disk_stay_paths() -> None:
    for text in ("s3", "a/s3:/b", "C:/x", "./http:/x", "hf://org/name"):
        assert not isinstance(place(text), RemotePath)
    path = place("s3://zoo/a/vit.safetensors")
    assert isinstance(path, RemotePath)
    assert (path.host, path.key, str(path.parent / "x")) == (
        "zoo",
        "a/vit.safetensors",
        "s3://zoo/a/x",
    )
    assert place(Path("s3://zoo/a")) == place("s3://zoo/a")
    assert isinstance(path.parent, RemotePath)


def test_a_local_run_imports_nothing_for_stores(vit_file: Path) -> None:
    import subprocess

    code = (
        "import sys; from resize_pos.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print([n for n in sys.modules if '.remote.' in n or n in ('boto3', 'fsspec', 'ssl')])"
    )
    words = [str(vit_file), "--to", "128", "-o", str(vit_file.with_name("o.safetensors")), "-q"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_errors_are_ours(server: RangeServer) -> None:
    for name in ("vit.safetensors/more", "", "%zz"):
        with pytest.raises(ResizePosError):
            inspect_checkpoint(f"{server.url}/{name}")
