"""Servers that come from npm or as extra packages: s3rver, azurite and gcp-storage-emulator.

They are not part of the development environment. To run these tests:
npm install -g s3rver azurite; pip install gcsfs adlfs gcp-storage-emulator; pytest -m slow FILE
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from resize_pos.api import inspect_checkpoint
from resize_pos.containers.remote import store
from resize_pos.core.errors import OutputError
from tests.containers.test_remote_s3 import expected, made, make_zoo, resized
from tests.support.object_stores import ObjectServer, azurite, google, program, s3rver

pytestmark = pytest.mark.slow

# The account of every azurite; its key is published.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.mark.parametrize("name", ["vit.safetensors", "vit.pth"])
def test_s3rver_gets_all_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if program("s3rver") is None:
        pytest.skip("the program s3rver is not installed")
    (tmp_path / "server").mkdir()
    with s3rver(tmp_path / "server") as server:
        zoo = make_zoo(server, tmp_path, monkeypatch)
        source = made(tmp_path, name)
        report = resized(zoo.put(name, source), zoo.url(f"wide-{name}"))
        assert zoo.get(f"wide-{name}") == expected(source)
        assert report.traffic is not None
        assert "does not copy parts" in report.traffic.notes[0]
        zoo.client.close()
        store.disconnect()


def azure_environment(server: ObjectServer) -> dict[str, str]:
    where = f"BlobEndpoint={server.endpoint}/{_ACCOUNT};"
    words = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{where}"
    return {"AZURE_STORAGE_CONNECTION_STRING": words}


def google_environment(server: ObjectServer) -> dict[str, str]:
    return {
        "STORAGE_EMULATOR_HOST": server.endpoint,
        "GOOGLE_CLOUD_PROJECT": "test",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # it asks Google for credentials
    }


Start = Callable[[Path], AbstractContextManager[ObjectServer]]
# scheme → program, package, fsspec's name, how it is started and found
STORES: dict[str, tuple[str, str, str, Start, Callable[[ObjectServer], dict[str, str]]]] = {
    "az": ("azurite-blob", "adlfs", "abfs", azurite, azure_environment),
    "gs": ("gcp-storage-emulator", "gcsfs", "gcs", google, google_environment),
}


@pytest.fixture(params=STORES)
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    needed, package, protocol, start, environment = STORES[request.param]
    pytest.importorskip(package)
    if program(needed) is None:
        pytest.skip(f"the program {needed} is not installed")
    (tmp_path / "server").mkdir()
    with start(tmp_path / "server") as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        store.disconnect()
        yield f"{request.param}://zoo", protocol
        store.disconnect()


@pytest.mark.filterwarnings("ignore")  # of the packages and of their servers
def test_a_store_is_read_by_range_and_written(bucket: tuple[str, str], tmp_path: Path) -> None:
    import fsspec

    url, protocol = bucket
    fsspec.filesystem(protocol).mkdir("zoo")
    there = fsspec.filesystem(protocol, use_listings_cache=False)
    source = made(tmp_path, "vit.safetensors")
    there.pipe_file("zoo/vit.safetensors", source.read_bytes())
    used = inspect_checkpoint(f"{url}/vit.safetensors", from_grid="6x9").traffic
    assert used is not None and used.received < 1 << 20
    report = resized(f"{url}/vit.safetensors", f"{url}/wide.safetensors")
    assert there.cat_file("zoo/wide.safetensors") == expected(source)
    assert report.traffic is not None
    assert "went through this machine" in report.traffic.notes[0]
    with pytest.raises(OutputError, match="already exists"):
        resized(f"{url}/vit.safetensors", f"{url}/wide.safetensors")
    if protocol == "gcs":  # the emulator ignores the condition that gcsfs states
        return
    # The write itself is refused, too: between a look and the write, somebody may be faster.
    with pytest.raises(FileExistsError), there.open("zoo/wide.safetensors", "xb") as stream:
        stream.write(b"x" * (1 << 20))
    assert there.cat_file("zoo/wide.safetensors") == expected(source)
