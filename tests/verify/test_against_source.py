"""`verify` and `compare`, from the command line: what was copied, who made it, what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.ways.damage import DAMAGE, honest
from resize_pos.api import compare_checkpoints, verify_checkpoint
from resize_pos.core.conventions import CONVENTIONS, PEERS
from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.quality.checks import Level
from tests.cli.test_cli import Outcome, run
from tests.support.builders import raw_tensors, vit, write_safetensors

__all__ = ["run"]  # the fixture is used by its name
SOURCE, TARGET = (9, 14), (12, 21)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source, honest outputs by every convention, and one output per kind of damage."""
    tensors = vit(*SOURCE, patch=8, channels=48)
    write_safetensors(tmp_path / "source.safetensors", tensors, {"format": "pt"})
    table = tensors["pos_embed"][0]
    for name in CONVENTIONS:
        made = honest(table, 1, SOURCE, TARGET, name)[None]
        write_safetensors(tmp_path / f"{name}.safetensors", {**tensors, "pos_embed": made})
    for name, damage in DAMAGE.items():
        made = damage(table, 1, SOURCE, TARGET)[None]
        write_safetensors(tmp_path / f"{name}.safetensors", {**tensors, "pos_embed": made})
    return tmp_path


GEOMETRY = ("--from-grid", "9x14", "--to-grid", "12x21")


def verify(run: Any, folder: Path, name: str, *words: str) -> Outcome:
    output, source = folder / f"{name}.safetensors", folder / "source.safetensors"
    done: Outcome = run("verify", str(output), "--against", str(source), *GEOMETRY, *words)
    return done


@pytest.mark.parametrize("name", CONVENTIONS)
def test_an_honest_output_is_sound_and_its_maker_is_named(
    name: str,
    folder: Path,
    run: Any,
) -> None:
    done = verify(run, folder, name)
    assert done.code == 0, done.out
    assert "verdict: ok" in done.out
    assert f"made by {name}" in done.out or f"= {name}" in done.out or "bilinear" in done.out
    assert "5 other tensors are the source's, byte for byte" in done.out


@pytest.mark.parametrize("name", DAMAGE)
def test_a_botched_output_ends_with_3(name: str, folder: Path, run: Any) -> None:
    done = verify(run, folder, name)
    assert done.code == 3, done.out
    assert "verdict: fail" in done.out


def test_one_changed_byte_is_found(folder: Path, run: Any) -> None:
    path = folder / "timm.safetensors"
    blob = bytearray(path.read_bytes())
    tensors, _ = raw_tensors(path)
    at = blob.index(tensors["patch_embed.proj.weight"][1][:64])
    blob[at] ^= 1
    path.write_bytes(blob)
    done = verify(run, folder, "timm")
    assert done.code == 3
    assert "patch_embed.proj.weight: not the source's bytes" in done.out


def test_missing_added_and_retyped_tensors_are_named(folder: Path) -> None:
    tensors = vit(*SOURCE, patch=8, channels=48)
    tensors["pos_embed"] = honest(tensors["pos_embed"][0], 1, SOURCE, TARGET)[None]
    del tensors["norm.bias"]
    tensors["head.bias"] = tensors["head.bias"].astype(np.int32)
    tensors["new.weight"] = np.zeros(3, np.float32)
    output = write_safetensors(folder / "odd.safetensors", tensors)
    found = verify_checkpoint(
        output, folder / "source.safetensors", from_grid="9x14", to_grid="12x21"
    )
    assert found.against is not None
    untouched = found.against.untouched
    assert untouched.missing == ("norm.bias",)
    assert untouched.added == ("new.weight",)
    assert untouched.retyped == ("head.bias",)
    assert found.verdict is Level.FAIL


def test_a_lost_prefix_row_is_a_wrong_shape(folder: Path) -> None:
    tensors = vit(*SOURCE, patch=8, channels=48)
    made = honest(tensors["pos_embed"][0], 1, SOURCE, TARGET)[None]
    output = write_safetensors(folder / "odd.safetensors", {**tensors, "pos_embed": made[:, 1:]})
    found = verify_checkpoint(
        output, folder / "source.safetensors", from_grid="9x14", to_grid="12x21", prefix=1
    )
    assert found.against is not None
    (check,) = found.against.tables[0].checks
    assert check.level is Level.FAIL
    assert "the prefix rows are gone" in check.detail


def test_the_same_grid_means_the_same_bytes(folder: Path) -> None:
    source = folder / "source.safetensors"
    tensors = vit(*SOURCE, patch=8, channels=48)
    tensors["pos_embed"] = tensors["pos_embed"] + np.float32(1)
    output = write_safetensors(folder / "odd.safetensors", tensors)
    copy = folder / "copy.safetensors"
    copy.write_bytes(source.read_bytes())
    same = verify_checkpoint(copy, source, from_grid="9x14", to_grid="9x14")
    assert same.verdict is Level.OK
    other = verify_checkpoint(output, source, from_grid="9x14", to_grid="9x14")
    assert other.verdict is Level.FAIL


def test_a_geometry_left_open_is_read_from_the_weights(folder: Path, run: Any) -> None:
    done = run(
        "verify",
        str(folder / "timm.safetensors"),
        "--against",
        str(folder / "source.safetensors"),
        "--from-grid",
        "9x14",
    )
    assert done.code == 0
    assert "9×14 → 12×21" in done.out


def test_nothing_to_verify_against_is_a_usage_error(vit_file: Path, run: Any) -> None:
    assert run("verify", str(vit_file)).code == 2
    assert run("verify", str(vit_file), "--size", "64", "--model", "timm:x").code == 2
    assert run("verify", str(vit_file), "--model", "hf:x").code == 2


def test_the_document_has_everything(folder: Path, run: Any) -> None:
    document = json.loads(verify(run, folder, "one_d", "--json").out)
    assert document["schema"] == "resize-pos/verify/1"
    assert document["verdict"] == "fail"
    (table,) = document["tables"]
    assert table["made_by"] is None
    assert table["diagnosis"]["name"] == "1-D"
    assert table["measures"]["displacement"] > 0.12
    assert {peer["name"] for peer in table["conventions"]} == {peer.name for peer in PEERS}
    assert document["untouched"]["tensors"] == 5


@pytest.mark.parametrize(
    ("size", "code", "words"),
    [
        ("64", 0, "fits 64: pos_embed 4×4"),
        ("96", 1, "pos_embed is 4×4 (64 px at patch 16), not 6×6"),
        ("64x96", 1, "not 4×6"),
        ("100", 1, "not 6×6"),
        ("70", 0, "fits 70: pos_embed 4×4 (64 px; the rest is dropped)"),
    ],
)
def test_does_it_fit_is_answered_in_one_line(
    size: str,
    code: int,
    words: str,
    vit_file: Path,
    run: Any,
) -> None:
    done = run("verify", str(vit_file), "--size", size)
    assert done.code == code
    assert words in done.out
    assert done.out.count("\n") == 1
    answer = json.loads(run("verify", str(vit_file), "--size", size, "--json").out)
    assert answer["fits"] is (code == 0)


def test_conventions_are_compared_in_memory(folder: Path, run: Any) -> None:
    before = sorted(folder.iterdir())
    source = folder / "source.safetensors"
    done = run("compare", str(source), *GEOMETRY, "--json")
    assert done.code == 0
    assert sorted(folder.iterdir()) == before
    document = json.loads(done.out)
    labels = " = ".join(document["labels"]).split(" = ")
    assert sorted(labels) == sorted(peer.name for peer in PEERS)
    (table,) = document["tables"]
    assert all(side["verdict"] == "ok" for side in table["sides"])
    count = len(document["labels"])
    distances = np.array(table["distances"])
    assert distances.shape == (count, count)
    assert (np.diag(distances) == 0).all()
    # Antialiasing changes nothing about bilinear when a table grows; all others differ.
    assert np.count_nonzero(distances[~np.eye(count, dtype=bool)] == 0) <= 2


def test_files_are_compared_against_their_source(folder: Path, run: Any) -> None:
    paths = [str(folder / f"{name}.safetensors") for name in ("source", "timm", "transposed")]
    done = run("compare", *paths, *GEOMETRY)
    assert done.code == 0, done.err
    assert "source: source.safetensors" in done.out
    assert "swapped" in done.out
    comparison = compare_checkpoints(*paths, from_grid="9x14", to_grid="12x21")
    assert [side.verdict for side in comparison.tables[0].sides] == [Level.OK, Level.FAIL]


def test_files_of_one_resolution_are_compared_with_each_other(folder: Path) -> None:
    paths = [folder / f"{name}.safetensors" for name in ("timm", "hf", "dinov2-reg")]
    comparison = compare_checkpoints(*paths, from_grid="12x21", to_grid="12x21")
    assert comparison.source is None
    first = comparison.tables[0].distances[0]
    assert first[0] == first[2] == 0 < first[1] < 0.1


def test_mixed_resolutions_are_refused(folder: Path, vit_file: Path) -> None:
    source = folder / "source.safetensors"
    with pytest.raises(UsageError):
        compare_checkpoints(source)
    with pytest.raises((GeometryError, TableError)):
        compare_checkpoints(source, folder / "timm.safetensors", vit_file, from_grid="9x14")


def test_a_limit_fails_what_exceeds_it(vit_file: Path, run: Any) -> None:
    words = (str(vit_file), "--to", "96", "-f")
    assert run(*words, "--max", "norm_change=0.5").code == 0
    done = run(*words, "--max", "round_trip=0", "--max", "distance_jax=0.9")
    assert done.code == 3
    assert "round_trip is" in done.out
    assert "--max 0" in done.out
    assert run(*words, "--max", "distance_hf=0").code == 3
    for wrong in ("round_trip", "round_trip=much", "no_such=1"):
        refused = run(*words, "--max", wrong)
        assert refused.code == 2
        assert "--max" in refused.err


def test_a_folder_s_config_must_agree_with_its_tables(tmp_path: Path, run: Any) -> None:
    for name, grid, stated in (("old", (4, 6), [64, 96]), ("new", (6, 9), [96, 144])):
        folder = tmp_path / name
        folder.mkdir()
        tensors = vit(4, 6)
        table = tensors["pos_embed"][0]
        tensors["pos_embed"] = honest(table, 1, (4, 6), grid)[None]
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        config = {"image_size": stated, "patch_size": 16}
        (folder / "config.json").write_text(json.dumps(config))
    done = run("verify", str(tmp_path / "new"), "--against", str(tmp_path / "old"))
    assert done.code == 0, done.out + done.err
    assert "config.json says image_size 96x144" in done.out
    stale = json.dumps({"image_size": [64, 96], "patch_size": 16})
    (tmp_path / "new" / "config.json").write_text(stale)
    words = ("--against", str(tmp_path / "old"), "--to", "96x144", "--strict")
    done = run("verify", str(tmp_path / "new"), *words)
    assert done.code == 3
    assert "says image_size 64x96, but the tables are for 96x144 px" in done.out


def test_a_source_whose_grid_is_open_is_named_with_the_flags_that_settle_it(
    tmp_path: Path, run: Any
) -> None:
    tensors = vit(*SOURCE, patch=8, channels=48)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1, 1 + 9 * 14, 48)).astype(np.float32)
    write_safetensors(tmp_path / "source.safetensors", {**tensors, "pos_embed": noise})
    made = honest(noise[0], 1, SOURCE, (12, 12), "timm")[None]
    write_safetensors(tmp_path / "out.safetensors", {**tensors, "pos_embed": made})
    words = ("verify", str(tmp_path / "out.safetensors"), "--against")
    done = run(*words, str(tmp_path / "source.safetensors"))
    assert done.code == 1
    assert "The source of out.safetensors: pos_embed has 127 rows" in done.err
    assert "with --from SIZE, and the output's with --to SIZE" in done.err
    sizes = ("--from", "72x112", "--to", "96x96")
    settled = run(*words, str(tmp_path / "source.safetensors"), *sizes)
    assert "9×14 → 12×12" in settled.out


def test_a_source_that_is_not_finite_is_said_to_be_so(folder: Path, run: Any) -> None:
    tensors = vit(*SOURCE, patch=8, channels=48)
    tensors["pos_embed"][0, 5, :3] = np.nan, np.inf, -np.inf
    write_safetensors(folder / "source.safetensors", tensors, {"format": "pt"})
    done = verify(run, folder, "timm")
    assert done.code == 3
    assert "the source's pos_embed holds 3 values that are NaN or infinite" in done.out
    assert "bug" not in done.err


def test_a_file_is_not_compared_with_itself(folder: Path, run: Any) -> None:
    (folder / "link.safetensors").symlink_to(folder / "source.safetensors")
    for name in ("source", "link"):
        done = verify(run, folder, name)
        assert done.code == 2
        assert "are the same file" in done.err
        assert "resize-pos verify OUTPUT --against SOURCE" in done.err


def test_exchanged_files_are_noticed_by_their_record(folder: Path, run: Any) -> None:
    """There and back again is no exchange: then the output's own record names its source."""
    paths = [folder / f"{name}.safetensors" for name in ("source", "wide", "back")]
    for source, made, grid in zip(paths, paths[1:], ("12x21", "9x14"), strict=False):
        stated = ("--from-grid", "9x14") if source == paths[0] else ()
        done = run(str(source), *stated, "--to-grid", grid, "-o", str(made))
        assert done.code == 0, done.err
    told = "the record in wide.safetensors says that it was made from source.safetensors"
    flags = ("--from-grid", "12x21", "--to-grid", "9x14")
    for new, old, warned in ((0, 1, True), (1, 0, False), (2, 1, False)):
        words = ("verify", str(paths[new]), "--against", str(paths[old]))
        done = run(*words, *(flags if new != 1 else GEOMETRY))
        assert (told in " ".join(done.out.split())) is warned, done.out + done.err
