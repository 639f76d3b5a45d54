"""The commands on stores in docs/scale.md, run in order against SeaweedFS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resize_pos.containers.remote import store
from tests.docs.test_ci_docs import SCALE
from tests.docs.test_docs import commands, shell
from tests.support.bucket import make_buckets
from tests.support.builders import vit, write_safetensors
from tests.support.object_stores import program, seaweed

pytest.importorskip("boto3")

URL = re.compile(r"\w+://zoo")


def test_the_commands_on_stores_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program("weed") is None:
        pytest.skip("the program weed is not installed")
    found = [(command, shown) for command, shown in commands(SCALE) if URL.search(command)]
    assert any("batch s3://zoo/ --to 384 -o s3://zoo-384/" in command for command, _ in found)
    (tmp_path / "weed").mkdir()
    (tmp_path / "zoo").mkdir()
    with seaweed(tmp_path / "weed") as server:
        client = make_buckets(server, tmp_path, monkeypatch).client
        for name in ("vit.safetensors", "large/vit.safetensors"):
            path = write_safetensors(tmp_path / "v.safetensors", vit(14, 14), {"format": "pt"})
            client.put_object(Bucket="zoo", Key=name, Body=path.read_bytes())
            path.rename(tmp_path / "zoo" / Path(name).name)
        for command, _ in found:
            done = shell(command, tmp_path)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        keys = [one["Key"] for one in client.list_objects_v2(Bucket="zoo-384")["Contents"]]
        client.close()
    store.disconnect()
    assert {"vit.safetensors", "large/vit.safetensors"} <= set(keys)
