"""Before a safetensors file appears, the safetensors library reads its header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from resize_pos import resize_checkpoint
from resize_pos.containers.safetensors import file as safetensors_file
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import OutputError
from tests.containers.test_sharded import shards
from tests.support.builders import vit, write_safetensors


@pytest.mark.parametrize("sharded", [False, True])
def test_a_file_that_the_reference_refuses_never_appears(
    sharded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant a header that the format forbids, and a reader of our own that does not notice."""
    if sharded:
        source = shards(tmp_path / "model")
    else:
        source = write_safetensors(tmp_path / "a.safetensors", vit())
    original = SafetensorsFile._encode

    def wrong(self: SafetensorsFile, *arguments: Any) -> bytes:
        encoded = original(self, *arguments)
        return encoded.replace(b'"format":"pt"', b'"format": 1.5', 1)

    def lenient(found: Mapping[str, object] | None) -> dict[str, str]:
        return {key: value for key, value in (found or {}).items() if isinstance(value, str)}

    monkeypatch.setattr(SafetensorsFile, "_encode", wrong)
    monkeypatch.setattr(safetensors_file, "check_metadata", lenient)
    with pytest.raises(OutputError, match="the safetensors library refuses the file"):
        resize_checkpoint(source, to="96x128", output=tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {source.name}


def test_an_unchanged_copy_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_safetensors(tmp_path / "a.safetensors", vit())
    checked: list[Path] = []
    original = SafetensorsFile.check_with_reference

    def check(self: SafetensorsFile) -> None:
        checked.append(self.path)
        original(self)

    monkeypatch.setattr(SafetensorsFile, "check_with_reference", check)
    resize_checkpoint(source, to=64, output=tmp_path / "b.safetensors")
    assert [path.parent for path in checked] == [tmp_path]
