"""Private models: tables under names that no family knows, by shape and by value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from resize_pos.core.errors import ResizePosError
from resize_pos.core.request import Request
from resize_pos.quality.checks import Level
from resize_pos.report.report import Report
from resize_pos.run.job import Job, run
from tests.outside.cases import pasted_flags, request
from tests.outside.cases import smooth as waves
from tests.support.builders import raw_tensors, write_safetensors

D = 48
Tensors = dict[str, NDArray[Any]]


def rows(height: int, width: int, channels: int = D, noise: float = 0.1) -> NDArray[np.float32]:
    """Give values as training leaves them, on the true grid."""
    field = waves(height, width, channels)
    more = noise * np.random.default_rng(1).standard_normal(field.shape)
    return (field + more).astype(np.float32)


def token(count: int = 1, channels: int = D) -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal((1, count, channels)).astype(np.float32)


def private(table: NDArray[np.float32], name: str = "my_pos", *, patch: int = 16) -> Tensors:
    """Make the tensors of a private model: nothing of it has a name that a family knows."""
    rng = np.random.default_rng(3)
    return {
        "cls": token(),
        name: table,
        "stem_conv.weight": rng.standard_normal((D, 3, patch, patch)).astype(np.float32),
        "layers.0.norm.weight": np.ones(D, np.float32),
        "layers.0.mix.weight": rng.standard_normal((2 * D, D)).astype(np.float32),
        "out.weight": rng.standard_normal((10, D)).astype(np.float32),
    }


def with_class(grid: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([token()[0], grid])[None]


def convert(folder: Path, tensors: Tensors, flags: str) -> tuple[Report, Path]:
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    return run(Job(source, request(flags.split()), output=output, force=True)), output


def refused(folder: Path, tensors: Tensors, flags: str) -> ResizePosError:
    with pytest.raises(ResizePosError) as caught:
        convert(folder, tensors, flags)
    assert not (folder / "out.safetensors").exists()
    return caught.value


def result(output: Path, name: str) -> NDArray[np.float32]:
    info, data = raw_tensors(output)[0][name]
    return np.frombuffer(data, "<f4").reshape(info["shape"])


def likeness(found: NDArray[np.float32], height: int, width: int) -> float:
    """Correlate a table with the true field at its new grid, apart from the mean vector."""
    field = waves(height, width, found.shape[-1])
    varied = [each - each.mean(axis=0) for each in (found.reshape(field.shape), field)]
    return float(np.corrcoef(varied[0].ravel(), varied[1].ravel())[0, 1])


NAMES = [
    "my_pos",
    "pos",
    "pe",
    "position",
    "positions",
    "grid_pos",
    "learned_positions",
    "positional",
    "abs_pos",
    "vit_pos",
    "posEmb",
    "pos_token_table",
    "learnable_pos",
    "spatial_pos",
    "pos_param",
    "backbone.vit.pe",
    "loc_embed",
    "grid_embed",
    "encoder.positional_table",
    "pos_lookup.weight",
    "grid_embed.weight",
    "location_embedding.weight",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_private_name_is_converted_at_once(name: str, tmp_path: Path) -> None:
    report, output = convert(tmp_path, private(with_class(rows(10, 14)), name), "--to 192x288")
    table = next(step.table for step in report.plan.steps if step.name == name)
    assert (table.family.name, str(table.grid), table.prefix) == ("by-value", "10×14", 1)
    new = result(output, name)
    assert new.shape == (1, 1 + 12 * 18, D)
    assert likeness(new[0, 1:], 12, 18) > 0.97
    before, after = (raw_tensors(tmp_path / f)[0] for f in ("model.safetensors", "out.safetensors"))
    assert all(after[other][1] == data for other, (_, data) in before.items() if other != name)


def test_the_report_says_on_what_evidence_and_warns_until_confirmed(tmp_path: Path) -> None:
    tensors = private(with_class(rows(10, 14)))
    report, output = convert(tmp_path, tensors, "--to 192x288")
    unconfirmed = output.read_bytes()
    assert report.verdict is Level.WARN
    (check,) = (check for check in report.checks if check.name == "by-value")
    for words in (
        "vary smoothly over 10×14",
        "cls may account for 1 row",
        "stem_conv.weight is a 16×16",
    ):
        assert words in check.detail
    for flags in ("--yes-by-value", "--pattern ^my_pos$"):
        report, output = convert(tmp_path, tensors, f"--to 192x288 {flags}")
        assert "by-value" not in {check.name for check in report.checks}
        old, new = (raw_tensors_of(blob) for blob in (unconfirmed, output.read_bytes()))
        assert old["my_pos"] == new["my_pos"]


def raw_tensors_of(blob: bytes) -> dict[str, bytes]:
    import json

    start = 8 + int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:start])
    header.pop("__metadata__", None)
    return {
        name: blob[start + info["data_offsets"][0] : start + info["data_offsets"][1]]
        for name, info in header.items()
    }


def untrained(count: int) -> NDArray[np.float32]:
    return (0.02 * np.random.default_rng(5).standard_normal((1, count, D))).astype(np.float32)


CASES_WITH_A_COMMAND: dict[str, tuple[Tensors, str]] = {
    "untrained": (private(untrained(141)), "--to 192x288 --from 160x224"),
    "untrained square": (private(untrained(197)), "--to 192x288"),
    "a name that says nothing": (private(with_class(rows(10, 14)), "table"), "--to 192x288"),
    "a small kernel": (private(with_class(rows(10, 14)), patch=4), "--to 48x72"),
}


@pytest.mark.parametrize("case", list(CASES_WITH_A_COMMAND)[1:])
def test_some_evidence_is_refused_with_a_command_that_works(case: str, tmp_path: Path) -> None:
    tensors, flags = CASES_WITH_A_COMMAND[case]
    error = refused(tmp_path, tensors, flags)
    hint = (error.hint or "").replace("SIZE", "40x56")
    assert hint.startswith("pass --pattern ")
    assert "--axes '1 (p h w s) d'" in hint
    more = pasted_flags(hint)
    report, output = convert_with(tmp_path, tensors, [*flags.split(), *more])
    name = "table" if "table" in tensors else "my_pos"
    assert result(output, name).shape == (1, 1 + 12 * 18, D)
    assert "by-value" not in {check.name for check in report.checks}


def convert_with(folder: Path, tensors: Tensors, words: list[str]) -> tuple[Report, Path]:
    source, output = folder / "model.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    return run(Job(source, request(words), output=output, force=True)), output


def test_shape_and_the_stated_size_are_enough(tmp_path: Path) -> None:
    """An untrained table has no values to speak for it; the kernel and --from agree."""
    tensors, flags = CASES_WITH_A_COMMAND["untrained"]
    report, output = convert(tmp_path, tensors, flags)
    assert result(output, "my_pos").shape == (1, 217, D)
    assert report.verdict is Level.WARN
    tensors = private(with_class(rows(10, 14)), "table")
    report, output = convert(tmp_path, tensors, "--from 160x224 --to 192x288")
    assert likeness(result(output, "table")[0, 1:], 12, 18) > 0.97


def test_a_grid_stored_by_columns_is_not_read_by_rows(tmp_path: Path) -> None:
    columns = rows(10, 14).reshape(10, 14, D).transpose(1, 0, 2).reshape(-1, D)
    error = refused(tmp_path, private(with_class(columns)), "--from 160x224 --to 192x288")
    assert "Its values do not settle it" in error.message


def test_a_class_row_that_comes_last_is_seen_in_the_values(tmp_path: Path) -> None:
    last = np.concatenate([rows(14, 14), token()[0]])[None]
    report, output = convert(tmp_path, private(last), "--to 192x288")
    (table,) = (step.table for step in report.plan.changes)
    assert (table.prefix, table.suffix) == (0, 1)
    new = result(output, "my_pos")[0]
    assert likeness(new[:-1], 12, 18) > 0.97
    assert np.array_equal(new[-1], last[0, -1])


@pytest.mark.parametrize("size", ["", "--from 224"])
def test_a_known_name_with_its_class_row_last_is_not_passed(size: str, tmp_path: Path) -> None:
    """A private model may use the names of timm and another order of rows."""
    last = np.concatenate([rows(14, 14), token()[0]])[None]
    tensors = private(last, "pos_embed") | {"cls_token": token()}
    tensors["patch_embed.proj.weight"] = tensors.pop("stem_conv.weight")
    if not size:
        assert "197 = 14×14 + 1" in refused(tmp_path, tensors, "--to 192x288").message
        return
    source = tmp_path / "model.safetensors"
    hints = {refused(tmp_path, tensors, f"{size} --to 192x288").hint}
    with pytest.raises(ResizePosError) as caught:
        run(Job(source, request(f"{size} --to 192x288".split()), dry_run=True))
    hints.add(caught.value.hint)
    (hint,) = hints  # the dry run refuses what the real run refuses
    assert pasted_flags(hint or "") == ["--prefix", "0", "--suffix", "1"]
    report, _ = convert(tmp_path, tensors, f"{size} --to 192x288 --prefix 1")
    assert report.exit_code() == 3  # who insists is told afterwards
    assert any("--prefix 0 --suffix 1" in check.detail for check in report.checks)
    report, _ = convert(tmp_path, tensors, f"{size} --to 192x288 --prefix 0 --suffix 1")
    assert report.exit_code() == 0


def test_the_width_of_the_model_says_which_axis_holds_the_channels(tmp_path: Path) -> None:
    """[1, d, n], where d is a square, too."""
    channels = 64
    tensors = private(np.ascontiguousarray(rows(9, 16, channels).T)[None])
    tensors |= {
        "cls": token(1, channels),
        "stem_conv.weight": np.ones((channels, 3, 16, 16), np.float32),
        "layers.0.norm.weight": np.ones(channels, np.float32),
    }
    report, output = convert(tmp_path, tensors, "--to 160x256")
    (table,) = (step.table for step in report.plan.changes)
    assert (str(table.layout), str(table.grid)) == ("1 d (p h w s)", "9×16")
    assert likeness(np.ascontiguousarray(result(output, "my_pos")[0].T), 10, 16) > 0.97


def test_a_known_name_with_channels_before_rows_is_refused_with_the_command(
    tmp_path: Path,
) -> None:
    """[1, 64, 196] under the name of timm: 64 is a square, too."""
    table = np.ascontiguousarray(rows(14, 14, 64).T)[None]
    tensors = private(table, "pos_embed")
    tensors |= {
        "patch_embed.proj.weight": np.ones((64, 3, 16, 16), np.float32),
        "layers.0.norm.weight": np.ones(64, np.float32),
        "cls": token(1, 64),
    }
    del tensors["stem_conv.weight"]
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "64 is a width of this model and 196 is not" in error.message
    flags = pasted_flags((error.hint or "").replace("SIZE", "224"))
    _, output = convert_with(tmp_path, tensors, [*flags, "--to", "192x288"])
    new = np.ascontiguousarray(result(output, "pos_embed")[0].T)
    assert likeness(new, 12, 18) > 0.97


def test_two_axes_as_long_as_a_width_are_told_apart_by_values_or_refused(tmp_path: Path) -> None:
    """144 rows of 64 channels in a model that has both widths."""
    both = {
        "head.norm.weight": np.ones(144, np.float32),
        "head.mix.weight": np.ones((144, 64), np.float32),
    }
    sized = {
        "stem_conv.weight": np.ones((64, 3, 16, 16), np.float32),
        "layers.0.norm.weight": np.ones(64, np.float32),
        "cls": token(1, 64),
    }
    tensors = private(rows(9, 16, 64)[None]) | both | sized
    report, _ = convert(tmp_path, tensors, "--to 160x256")
    assert str(report.plan.changes[0].table.layout) == "1 (p h w s) d"
    (tmp_path / "out.safetensors").unlink()
    blank = private(np.zeros((1, 144, 64), np.float32)) | both | sized
    error = refused(tmp_path, blank, "--to 160x256")
    assert "more than one of its axes" in error.message


def test_frames_one_after_the_other_are_no_tall_grid(tmp_path: Path) -> None:
    video = np.concatenate([rows(10, 14)] * 2)[None]
    error = refused(tmp_path, private(video), "--to 192x288")
    assert "several grids one after the other (2 × 10×14)" in error.message
    assert "--axes '1 (p t h w s) d'" in (error.hint or "")
    flags = [*pasted_flags((error.hint or "").replace("SIZE", "160x224")), "--to", "192x288"]
    _, output = convert_with(tmp_path, private(video), flags)
    assert result(output, "my_pos").shape == (1, 2 * 12 * 18, D)


def test_a_rectangle_without_a_kernel_has_square_patches(tmp_path: Path) -> None:
    """16×64 cells are also a 32×32 square: the shape of the image decides, not the square."""
    tensors = private(untrained(1024))
    del tensors["stem_conv.weight"]
    report, _ = convert(tmp_path, tensors, "--from 128x512 --to 96x384 --pattern ^my_pos$")
    (step,) = report.plan.changes
    assert (str(step.table.grid), str(step.target)) == ("16×64", "12×48")


def test_a_pattern_may_be_given_several_times(tmp_path: Path) -> None:
    tensors = private(rows(10, 1), "vertical_table") | {"horizontal_table": rows(1, 14)}
    words = ["--from", "160x224", "--to", "192x288"]
    words += ["--pattern", "^vertical_table$", "--axes", "h d"]
    words += ["--pattern", "^horizontal_table$", "--axes", "w d"]
    _, output = convert_with(tmp_path, tensors, words)
    assert result(output, "vertical_table").shape == (12, D)
    assert result(output, "horizontal_table").shape == (18, D)
    with pytest.raises(ResizePosError, match="--axes is given 2 times and --pattern 1 times"):
        Request.make(to=384, pattern="a", axes=["h d", "w d"])


def test_axes_alone_are_enough_if_they_fit_one_tensor(tmp_path: Path) -> None:
    grid = rows(10, 14).reshape(10, 14, D)
    words = ["--to", "192x288", "--axes", "h w d"]
    report, output = convert_with(tmp_path, private(grid, "table"), words)
    assert result(output, "table").shape == (12, 18, D)
    assert "by-value" not in {check.name for check in report.checks}
    two = private(grid, "table") | {"other": grid}
    with pytest.raises(ResizePosError, match="fits 2 tensors: table, other"):
        convert_with(tmp_path, two, words)


def test_a_pattern_leaves_the_other_tables_to_their_families(tmp_path: Path) -> None:
    """`--pattern` adds a table; it does not hide those that are known."""
    tensors = private(with_class(rows(10, 14)), "table")
    tensors |= {
        "pos_embed": with_class(rows(10, 14)),
        "cls_token": token(),
        "patch_embed.proj.weight": tensors["stem_conv.weight"],
    }
    report, _ = convert(tmp_path, tensors, "--to 192x288 --pattern ^table$")
    assert {step.name for step in report.plan.changes} == {"table", "pos_embed"}


def test_a_second_table_of_the_same_grid_follows_the_first(tmp_path: Path) -> None:
    """Half a model is never written: the decoder's table has the cells of the encoder's."""
    tensors = private(with_class(rows(10, 14)), "pos_embed")
    tensors |= {"cls_token": token(), "patch_embed.proj.weight": tensors["stem_conv.weight"]}
    tensors |= {"dec_norm.weight": np.ones(40, np.float32), "dec_pos": untrained(140)[..., :40]}
    report, output = convert(tmp_path, tensors, "--to 192x288")
    assert {step.name for step in report.plan.changes} == {"pos_embed", "dec_pos"}
    assert result(output, "dec_pos").shape == (1, 12 * 18, 40)


def test_a_table_that_stays_is_named_and_warned_about(tmp_path: Path) -> None:
    tensors = private(with_class(rows(10, 14)), "pos_embed")
    tensors |= {"cls_token": token(), "patch_embed.proj.weight": tensors["stem_conv.weight"]}
    tensors |= {"extra_pos": untrained(64)}
    report, _ = convert(tmp_path, tensors, "--to 192x288")
    assert [miss.tensor.name for miss in report.plan.looks_like] == ["extra_pos"]
    assert report.verdict is Level.WARN
    assert any("extra_pos" in check.detail for check in report.checks)
    report, _ = convert(tmp_path, tensors, "--to 192x288 --leave ^extra_pos$")
    assert not report.plan.looks_like


# Tensors that count something else than cells, with the code that they were read from.
DECOYS: dict[str, tuple[tuple[int, ...], str]] = {
    "query_embed.weight": ((100, D), "facebookresearch/detr models/detr.py: object queries"),
    "transformer.row_embed.weight": ((50, D), "detr models/position_encoding.py: learned rows"),
    "transformer.col_embed.weight": ((50, D), "detr models/position_encoding.py: learned columns"),
    "embeddings.token_type_embeddings.weight": ((2, D), "transformers modeling_bert.py"),
    "register_tokens": ((1, 4, D), "facebookresearch/dinov2 vision_transformer.py"),
    "class_prompts": ((140, D), "KaiyangZhou/CoOp trainers/coop.py: context per class"),
    "prompt_learner.ctx": ((16, D), "CoOp trainers/coop.py"),
    "encoder.block.0.relative_attention_bias.weight": ((32, D), "transformers modeling_t5.py"),
    "refpoint_embed.weight": ((140, 4), "IDEA-Research/DAB-DETR: anchor boxes"),
    "level_embed": ((4, D), "Deformable-DETR: one row per level"),
    "mask_tokens.weight": ((9, D), "segment-anything mask_decoder.py"),
    "word_embeddings.weight": ((141, D), "transformers modeling_bert.py: words"),
    "time_embed": ((1, 140, D), "TimeSformer vit.py: frames"),
    "latents": ((140, D), "lucidrains perceiver_pytorch.py"),
    "codebook.weight": ((196, D), "CompVis/taming-transformers quantize.py"),
    "text.position_table": ((77, D), "a text tower's own positions"),
}


@pytest.mark.parametrize("name", DECOYS)
@pytest.mark.parametrize("flags", ["--to 192x288", "--from 160x224 --to 192x288"])
def test_decoys_stay_untouched(name: str, flags: str, tmp_path: Path) -> None:
    shape, source = DECOYS[name]
    values = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    tensors = private(with_class(rows(10, 14))) | {name: values}
    if "row_embed" in name:
        tensors[name.replace("row", "col")] = values
    try:
        report, output = convert(tmp_path, tensors, flags)
    except ResizePosError as error:  # as many rows as the table: the user decides
        assert name in error.message, source
        assert "--leave" in (error.hint or "")
        report, output = convert(tmp_path, tensors, f"{flags} --leave ^{re.escape(name)}$")
    assert {step.name for step in report.plan.changes} == {"my_pos"}, source
    assert np.array_equal(result(output, name), values)


@pytest.mark.parametrize("width", [D, D // 2])  # added to each other, or joined
def test_rows_and_columns_of_one_size_are_not_taken_for_those_of_detr(
    width: int, tmp_path: Path
) -> None:
    tensors = private(with_class(rows(10, 14)))
    del tensors["my_pos"]
    for name, count in (("row_embed.weight", 10), ("col_embed.weight", 14)):
        tensors[name] = rows(1, count)[:, :width].copy()
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "one row per row and per column of a 10×14 grid" in error.message
    flags = [word.replace("SIZE", "160x224") for word in pasted_flags(error.hint or "")]
    report, output = convert_with(tmp_path, tensors, ["--to", "192x288", *flags])
    assert {step.name for step in report.plan.changes} == {"row_embed.weight", "col_embed.weight"}
    assert result(output, "row_embed.weight").shape == (12, width)
    assert result(output, "col_embed.weight").shape == (18, width)


def test_windows_that_are_equal_in_two_stages_do_not_follow_the_image(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    tensors = {
        f"stage{stage}.block.{name}": rng.standard_normal(shape).astype(np.float32)
        for stage, width in ((1, 32), (2, 64))
        for name, shape in {"pos_embedding": (13, 13), "qkv.weight": (3 * width, width)}.items()
    }
    report, _ = convert(tmp_path, tensors, "--to 448")
    assert not report.plan.changes
    assert {each.family.name for each in report.plan.left_alone} == {"unknown-window"}


def test_channels_of_a_linear_patch_are_never_guessed(tmp_path: Path) -> None:
    """768 numbers are 16×16 pixels of 3 channels or 8×8 of 12; the size of the image tells."""
    tensors = private(rows(20, 28)[None])
    tensors["to_patch.weight"] = np.ones((D, 768), np.float32)
    del tensors["stem_conv.weight"]
    error = refused(tmp_path, tensors, "--to 192x288")
    assert "16×16 pixels of 3 channels, or 8×8 of 12" in error.message
    flags = pasted_flags((error.hint or "").replace("SIZE", "160x224"))
    source, output = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    run(Job(source, request(["--to", "192x288", *flags]), output=output))
    assert result(output, "my_pos").shape == (1, 24 * 36, D)


def test_a_known_family_with_a_linear_patch_names_both_readings(tmp_path: Path) -> None:
    """The table of vit-pytorch: 3 channels are what its library builds, so the run goes on."""
    tensors = private(with_class(rows(14, 14)), "pos_embedding")
    tensors["to_patch_embedding.2.weight"] = np.ones((D, 768), np.float32)
    tensors["cls_token"] = tensors.pop("cls")
    del tensors["stem_conv.weight"]
    report, output = convert(tmp_path, tensors, "--to 192x288")
    assert result(output, "pos_embedding").shape == (1, 1 + 12 * 18, D)
    (note,) = [str(each) for each in report.plan.notes if "channels" in str(each)]
    assert "--from 224 or --from 112" in note
    assert report.verdict is Level.WARN
    report, _ = convert(tmp_path, tensors, "--from 224 --to 192x288")
    assert not any("channels" in str(each) for each in report.plan.notes)
