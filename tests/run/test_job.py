"""The pipeline on real files: what is written, what is not, and what the file says of itself."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos import resize_checkpoint
from resize_pos.containers.base import Promised
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import OutputError, ResizePosError, TableError
from resize_pos.report import Report
from tests.support.builders import raw_tensors, vit, write_safetensors


def output_of(report: Report) -> Path:
    assert report.output is not None
    return report.output


def folder_of(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_only_the_table_changes_and_every_other_byte_is_identical(vit_file: Path) -> None:
    output = output_of(resize_checkpoint(vit_file, to="96x160"))
    before, _ = raw_tensors(vit_file)
    after, _ = raw_tensors(output)
    assert list(before) == list(after)
    assert after.pop("pos_embed")[0] == {"dtype": "F32", "shape": [1, 61, 8]}
    before.pop("pos_embed")
    assert before == after


def test_prefix_rows_are_bit_equal(vit_file: Path) -> None:
    output = output_of(resize_checkpoint(vit_file, to="96x160"))
    row = 8 * 4
    assert raw_tensors(output)[0]["pos_embed"][1][:row] == vit()["pos_embed"].tobytes()[:row]


def test_the_source_is_not_touched(vit_file: Path) -> None:
    before = vit_file.read_bytes(), vit_file.stat().st_mtime_ns
    resize_checkpoint(vit_file, to=96)
    assert (vit_file.read_bytes(), vit_file.stat().st_mtime_ns) == before


def test_same_input_and_flags_give_the_same_bytes(vit_file: Path, tmp_path: Path) -> None:
    first = output_of(resize_checkpoint(vit_file, to="96x160", output=tmp_path / "a.safetensors"))
    second = output_of(resize_checkpoint(vit_file, to="96x160", output=tmp_path / "b.safetensors"))
    assert first.read_bytes() == second.read_bytes()


def test_metadata_is_kept_and_provenance_added(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "v.safetensors", vit(), {"epoch": "3", "format": "pt"})
    _, metadata = raw_tensors(output_of(resize_checkpoint(source, to="96x160")))
    assert list(metadata) == ["epoch", "format", "resize_pos"]
    record = json.loads(metadata["resize_pos"])
    assert (record["from"], record["to"]) == ("64", "96x160")
    assert record["method"] == ["bicubic, antialias"]
    assert record["source"].startswith("sha256:")
    assert record["tables"]["pos_embed"] == {
        "from": [4, 4],
        "to": [6, 10],
        "prefix": 1,
        "suffix": 0,
    }


def test_the_digest_follows_the_table_and_nothing_else(tmp_path: Path) -> None:
    def digest(tensors: dict[str, NDArray[Any]], name: str) -> str:
        source = write_safetensors(tmp_path / name, tensors)
        _, metadata = raw_tensors(output_of(resize_checkpoint(source, to=96)))
        return str(json.loads(metadata["resize_pos"])["source"])

    other_head, other_table = vit(), vit()
    other_head["head.bias"] = other_head["head.bias"] + 1
    other_table["pos_embed"] = other_table["pos_embed"] + 1
    original = digest(vit(), "a.safetensors")
    assert digest(other_head, "b.safetensors") == original
    assert digest(other_table, "c.safetensors") != original


def test_a_file_without_format_gets_one_with_the_provenance(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "v.safetensors", vit())
    _, metadata = raw_tensors(output_of(resize_checkpoint(source, to=96)))
    assert metadata["format"] == "pt"


def test_a_recorded_grid_is_read_back(vit_file: Path, tmp_path: Path) -> None:
    """2×8 has as many cells as 4×4: only the record tells the second run which one it is."""
    wide = output_of(resize_checkpoint(vit_file, to="32x128"))
    report = resize_checkpoint(wide, to=64, output=tmp_path / "back.safetensors")
    (table,) = report.tables
    assert str(table.step.table.grid) == "2×8"
    assert "recorded in the file" in table.step.table.evidence[0]
    assert raw_tensors(output_of(report))[0]["pos_embed"][1] != wide.read_bytes()


def test_a_config_beside_the_file_settles_the_grid(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "model.safetensors", vit(2, 8))
    (tmp_path / "config.json").write_text('{"image_size": [32, 128]}')
    (table,) = resize_checkpoint(source, to=64).tables
    assert str(table.step.table.grid) == "2×8"
    assert table.step.table.evidence[0] == "config.json says image_size 32x128, at patch 16"


def test_a_config_that_does_not_fit_is_remarked_upon(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "model.safetensors", vit())
    (tmp_path / "config.json").write_text('{"image_size": 224}')
    (table,) = resize_checkpoint(source, to=96).tables
    assert str(table.step.table.grid) == "4×4"
    assert "which does not fit 17 rows" in table.step.table.evidence[0]


def test_the_same_size_is_a_no_op_that_writes_nothing(vit_file: Path) -> None:
    report = resize_checkpoint(vit_file, to=64)
    assert (report.status, report.output) == ("unchanged", None)
    assert folder_of(vit_file) == ["vit.safetensors"]


def test_the_same_size_with_an_output_is_a_byte_identical_copy(
    vit_file: Path, tmp_path: Path
) -> None:
    report = resize_checkpoint(vit_file, to=64, output=tmp_path / "copy.safetensors")
    assert report.status == "unchanged"
    assert (tmp_path / "copy.safetensors").read_bytes() == vit_file.read_bytes()


def test_equal_counts_really_resample(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "v.safetensors", vit(2, 8))
    output = output_of(resize_checkpoint(source, from_grid="2x8", to_grid="4x4"))
    before, after = raw_tensors(source)[0]["pos_embed"], raw_tensors(output)[0]["pos_embed"]
    assert before[0] == after[0]
    assert before[1] != after[1]


DTYPES = {
    "F64": np.float64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize("name", DTYPES)
def test_the_stored_dtype_is_kept(name: str, tmp_path: Path) -> None:
    tensors = vit(3, 5)
    tensors["pos_embed"] = tensors["pos_embed"].astype(DTYPES[name])
    source = write_safetensors(tmp_path / "v.safetensors", tensors)
    output = output_of(resize_checkpoint(source, from_grid="3x5", to_grid="7x4"))
    container = SafetensorsFile.open(output)
    assert container.tensors["pos_embed"].dtype == name
    exact = resize_checkpoint(
        write_safetensors(
            tmp_path / "exact.safetensors",
            tensors | {"pos_embed": tensors["pos_embed"].astype(np.float64)},
        ),
        from_grid="3x5",
        to_grid="7x4",
    )
    expected = SafetensorsFile.open(output_of(exact)).read("pos_embed")
    stored = container.read("pos_embed").astype(np.float64)
    resolution = float(ml_dtypes.finfo(DTYPES[name]).eps)
    np.testing.assert_allclose(stored, expected, rtol=resolution, atol=resolution / 8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_table_that_is_not_finite_is_refused_and_nothing_is_written(
    value: float, tmp_path: Path
) -> None:
    tensors = vit()
    tensors["pos_embed"][0, 3, 2] = value
    source = write_safetensors(tmp_path / "v.safetensors", tensors)
    with pytest.raises(TableError) as caught:
        resize_checkpoint(source, to=96)
    assert "pos_embed holds 1 value" in caught.value.message
    assert "[0, 3, 2]" in caught.value.message
    assert folder_of(source) == ["v.safetensors"]


def test_an_existing_target_is_refused_and_left_alone(vit_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    target.write_text("precious")
    assert resize_checkpoint(vit_file, to=96, output=target, dry_run=True).needs_force
    with pytest.raises(OutputError, match="already exists"):
        resize_checkpoint(vit_file, to=96, output=target)
    assert target.read_text() == "precious"
    resize_checkpoint(vit_file, to=96, output=target, force=True)
    assert "pos_embed" in raw_tensors(target)[0]


@pytest.mark.parametrize("how", ["same", "link", "roundabout"])
def test_the_source_is_refused_as_target_even_by_force(
    how: str, vit_file: Path, tmp_path: Path
) -> None:
    target = {
        "same": vit_file,
        "link": tmp_path / "link.safetensors",
        "roundabout": tmp_path / "sub" / ".." / vit_file.name,
    }[how]
    (tmp_path / "sub").mkdir()
    if how == "link":
        target.symlink_to(vit_file)
    before = vit_file.read_bytes()
    with pytest.raises(OutputError, match="the target is the source"):
        resize_checkpoint(vit_file, to=96, output=target, force=True)
    assert vit_file.read_bytes() == before


def test_the_file_mode_is_kept(vit_file: Path) -> None:
    vit_file.chmod(0o640)
    output = output_of(resize_checkpoint(vit_file, to=96))
    assert stat.S_IMODE(output.stat().st_mode) == 0o640


def test_a_full_disk_is_noticed_before_writing(
    vit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"total": 10**9, "free": 17})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OutputError, match="only 17"):
        resize_checkpoint(vit_file, to=96)
    assert folder_of(vit_file) == ["vit.safetensors"]


def test_an_output_that_is_not_as_planned_is_thrown_away(
    vit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that loses the prefix row: caught between writing and renaming."""
    write = SafetensorsFile.write_early

    def careless(self: SafetensorsFile, stage: Path, changes: Promised, metadata: Any) -> Any:
        shifted = {name: np.roll(array, 1, axis=1) for name, array in changes.wait().items()}
        return write(self, stage, Promised.kept(shifted), metadata)

    monkeypatch.setattr(SafetensorsFile, "write_early", careless)
    with pytest.raises(OutputError, match="not kept bit for bit"):
        resize_checkpoint(vit_file, to=96)
    assert folder_of(vit_file) == ["vit.safetensors"]


def test_a_dry_run_plans_what_the_real_run_does(vit_file: Path) -> None:
    planned = resize_checkpoint(vit_file, to="96x160", dry_run=True)
    assert planned.status == "planned"
    assert folder_of(vit_file) == ["vit.safetensors"]
    done = resize_checkpoint(vit_file, to="96x160")
    assert planned.plan == done.plan
    assert planned.output == done.output


def test_an_error_names_the_file(vit_file: Path) -> None:
    with pytest.raises(ResizePosError) as caught:
        resize_checkpoint(vit_file, to=100, from_=64)
    assert caught.value.message.startswith("vit.safetensors: pos_embed: to=100 px")
