"""Two fresh buckets of a running store, which the program finds through its environment."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from resize_pos.containers.remote import store
from tests.support.object_stores import ObjectServer

LEDGER = ".resize-pos-batch/"
_numbers = iter(range(1_000_000))


class Buckets:
    """A fresh folder with sources and one for outputs; the test's own client reads both.

    They are folders of two buckets, because SeaweedFS reserves volumes for every bucket.
    """

    def __init__(self, server: ObjectServer) -> None:
        self.client = server.client()
        word = f"{os.getpid()}-{next(_numbers)}"
        self.source, self.target = f"zoo/{word}", f"zoo-384/{word}"
        present = [one["Name"] for one in self.client.list_buckets()["Buckets"]]
        for name in ("zoo", "zoo-384"):
            if name not in present:
                self.client.create_bucket(Bucket=name)

    def put(self, key: str, data: bytes, folder: str | None = None) -> None:
        """Put an object below the sources, or below another folder."""
        self.client.put_object(**_place(folder or self.source, key), Body=data)

    def delete(self, key: str) -> None:
        """Delete an object of the outputs."""
        self.client.delete_object(**_place(self.target, key))

    def begin_upload(self, key: str) -> None:
        """Begin an upload to an output, and leave it."""
        self.client.create_multipart_upload(**_place(self.target, key))

    def put_tree(self, folder: Path) -> None:
        """Put the files of a folder below the sources."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())

    def everything(self) -> dict[str, bytes]:
        """Read every object of the outputs, the ledger's included."""
        bucket, _, prefix = f"{self.target}/".partition("/")
        found = {}
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix):
            for one in page.get("Contents", ()):
                body = self.client.get_object(Bucket=bucket, Key=one["Key"])["Body"]
                found[one["Key"].removeprefix(prefix)] = body.read()
        return found

    def outputs(self) -> dict[str, bytes]:
        """Read the outputs without the ledger."""
        found = self.everything()
        return {key: data for key, data in found.items() if not key.startswith(LEDGER)}

    def claims(self) -> list[str]:
        """Return the claims that were left."""
        return [key for key, data in self.everything().items() if b'"claim"' in data]

    @property
    def uploads(self) -> list[Any]:
        """Return the uploads to outputs that were left."""
        bucket, _, prefix = f"{self.target}/".partition("/")
        found = self.client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
        return [one for one in found.get("Uploads") or () if one["Key"].startswith(prefix)]


def _place(folder: str, key: str) -> dict[str, str]:
    bucket, _, prefix = folder.partition("/")
    return {"Bucket": bucket, "Key": f"{prefix}/{key}"}


def make_buckets(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Buckets:
    """Make buckets, and let the program use this server without pauses."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "pause", lambda *_: None)
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda *_: None))
    store.disconnect()
    return Buckets(server)
