"""`--attention-scale`: queries × √(log N′ ÷ log N) in the weights, or a refusal that says why."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from resize_pos.api import resize_checkpoint, verify_checkpoint
from resize_pos.core.errors import TableError
from resize_pos.quality.checks import Level
from resize_pos.report.json import report_document
from tests.support.builders import flat, raw_tensors, vit, write_safetensors

WIDTH, BLOCKS = 24, 3
FACTOR = math.sqrt(math.log(1 + 5 * 4) / math.log(1 + 9 * 6))
Tensors = dict[str, NDArray[Any]]


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def plain(dtype: str = "float32") -> Tensors:
    """A timm ViT's attention, with queries, keys and values in one tensor."""
    tensors = vit(9, 6, channels=WIDTH)
    del tensors["blocks.0.attn.qkv.weight"]
    for i in range(BLOCKS):
        tensors[f"blocks.{i}.norm1.weight"] = numbers(WIDTH)
        tensors[f"blocks.{i}.attn.qkv.weight"] = numbers(3 * WIDTH, WIDTH).astype(dtype)
        tensors[f"blocks.{i}.attn.qkv.bias"] = numbers(3 * WIDTH).astype(dtype)
        tensors[f"blocks.{i}.attn.proj.weight"] = numbers(WIDTH, WIDTH)
    return tensors


def hf() -> Tensors:
    """The layout of transformers, with queries apart."""
    tensors: Tensors = {
        "vit.embeddings.cls_token": numbers(1, 1, WIDTH),
        "vit.embeddings.position_embeddings": flat(9, 6, WIDTH),
        "vit.embeddings.patch_embeddings.projection.weight": numbers(WIDTH, 3, 16, 16),
    }
    for i in range(BLOCKS):
        block = f"vit.encoder.layer.{i}."
        tensors[f"{block}layernorm_before.weight"] = numbers(WIDTH)
        for part in ("query", "key", "value"):
            tensors[f"{block}attention.attention.{part}.weight"] = numbers(WIDTH, WIDTH)
            tensors[f"{block}attention.attention.{part}.bias"] = numbers(WIDTH)
        tensors[f"{block}attention.output.dense.weight"] = numbers(WIDTH, WIDTH)
    return tensors


def clip() -> Tensors:
    """OpenAI's CLIP: the text tower has attention of the same names and the same width."""
    tensors: Tensors = {
        "positional_embedding": numbers(77, WIDTH),
        "visual.class_embedding": numbers(WIDTH),
        "visual.positional_embedding": flat(9, 6, WIDTH)[0],
        "visual.conv1.weight": numbers(WIDTH, 3, 16, 16),
    }
    for tower in ("visual.", ""):
        for i in range(BLOCKS):
            block = f"{tower}transformer.resblocks.{i}."
            tensors[f"{block}ln_1.weight"] = numbers(WIDTH)
            tensors[f"{block}attn.in_proj_weight"] = numbers(3 * WIDTH, WIDTH)
            tensors[f"{block}attn.in_proj_bias"] = numbers(3 * WIDTH)
            tensors[f"{block}attn.out_proj.weight"] = numbers(WIDTH, WIDTH)
    return tensors


def convert(folder: Path, tensors: Tensors) -> tuple[Path, Path]:
    source = write_safetensors(folder / "model.safetensors", tensors)
    output = folder / "out.safetensors"
    resize_checkpoint(
        source, to=(80, 64), from_=(144, 96), output=output, attention_scale=True, force=True
    )
    return source, output


def array(path: Path, name: str, like: NDArray[Any]) -> NDArray[Any]:
    return np.frombuffer(raw_tensors(path)[0][name][1], like.dtype).reshape(like.shape)


@pytest.mark.parametrize(
    ("make", "scaled"),
    [
        (plain, lambda n: n.endswith(("qkv.weight", "qkv.bias"))),
        (hf, lambda n: ".query." in n),
        (clip, lambda n: n.startswith("visual.") and ".in_proj_" in n),
    ],
)
def test_queries_are_scaled_and_nothing_else(
    tmp_path: Path, make: Callable[[], Tensors], scaled: Callable[[str], bool]
) -> None:
    tensors = make()
    _, output = convert(tmp_path, tensors)
    changed = 0
    for name, before in tensors.items():
        if name.endswith(("pos_embed", "position_embeddings", "visual.positional_embedding")):
            continue
        after = array(output, name, before)
        if not scaled(name):
            assert after.tobytes() == before.tobytes(), name
            continue
        changed += 1
        rows = before.shape[0] if before.shape[0] == WIDTH else WIDTH
        assert np.allclose(after[:rows], before[:rows] * FACTOR, rtol=1e-6)
        assert after[rows:].tobytes() == before[rows:].tobytes()
    assert changed == 2 * BLOCKS


def test_the_logits_of_attention_are_scaled_by_the_factor(tmp_path: Path) -> None:
    tensors = plain()
    _, output = convert(tmp_path, tensors)
    tokens = numbers(7, WIDTH)
    names = ("blocks.1.attn.qkv.weight", "blocks.1.attn.qkv.bias")
    before, after = [tensors[n] for n in names], [array(output, n, tensors[n]) for n in names]
    logits = []
    for weight, bias in (before, after):
        query, key, _ = np.split(tokens @ weight.T + bias, 3, axis=1)
        logits.append(query @ key.T)
    assert np.allclose(logits[1], FACTOR * logits[0], rtol=1e-4, atol=1e-4)


def test_verify_accepts_the_factor_of_other_code(tmp_path: Path) -> None:
    tensors = plain()
    source, output = convert(tmp_path, tensors)
    known = {"from_": (144, 96), "to": (80, 64)}
    whole = load_file(output)
    for name, before in tensors.items():
        if ".attn.qkv." in name:
            queries = len(before) // 3
            whole[name][:queries] = before[:queries] * np.float32(FACTOR)  # rounded first
    save_file(whole, output)
    verified = verify_checkpoint(output, source, **known)  # type: ignore[arg-type]
    assert verified.verdict is Level.OK
    name = "blocks.0.attn.qkv.weight"
    whole[name][-1, -1] *= np.float32(1 + 1e-6)  # a value, not a query
    save_file(whole, output)
    verified = verify_checkpoint(output, source, **known)  # type: ignore[arg-type]
    assert verified.verdict is Level.FAIL


def test_verify_names_it_and_finds_a_block_that_was_left_out(tmp_path: Path) -> None:
    tensors = plain()
    source, output = convert(tmp_path, tensors)
    known = {"from_": (144, 96), "to": (80, 64)}
    verified = verify_checkpoint(output, source, **known)  # type: ignore[arg-type]
    assert verified.verdict is Level.OK
    assert verified.against is not None
    said = " ".join(check.detail for check in verified.against.checks)
    assert (
        f"--attention-scale: {2 * BLOCKS} tensors are the source's, queries × {FACTOR:.4f}" in said
    )
    parts = {
        name: array(output, name, before) for name, before in tensors.items() if name != "pos_embed"
    }
    parts["blocks.2.attn.qkv.bias"] = tensors["blocks.2.attn.qkv.bias"]
    table = np.frombuffer(raw_tensors(output)[0]["pos_embed"][1], np.float32)
    parts["pos_embed"] = table.reshape(1, 21, WIDTH)
    broken = write_safetensors(tmp_path / "broken.safetensors", parts)
    assert verify_checkpoint(broken, source, **known).verdict is Level.FAIL  # type: ignore[arg-type]


def test_two_steps_give_the_factor_of_one(tmp_path: Path) -> None:
    tensors = plain()
    _, halfway = convert(tmp_path, tensors)
    last = tmp_path / "last.safetensors"
    resize_checkpoint(halfway, to=(144, 96), output=last, attention_scale=True)
    name = "blocks.0.attn.qkv.weight"
    assert np.allclose(array(last, name, tensors[name]), tensors[name], rtol=1e-6)


def test_the_report_says_that_it_is_experimental(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "vit.safetensors", plain("float16"))
    report = resize_checkpoint(
        source, to=(80, 64), from_=(144, 96), attention_scale=True, dry_run=True
    )
    tables = {table["name"]: table for table in report_document(report)["tables"]}
    entry = tables["blocks.0.attn.qkv.weight"]
    assert (entry["kind"], entry["action"], entry["reason"]) == ("query", "scale", "55 → 21 tokens")
    assert report_document(report)["request"]["attention_scale"] is True
    assert "experimental" in str(report.tables[-1].step.operation)
    assert "blocks.0.attn.qkv.weight" not in report.fine_tune.parameters


def with_query_norm(tensors: Tensors) -> None:
    tensors["blocks.1.attn.q_norm.weight"] = numbers(8)


def with_talking_heads(tensors: Tensors) -> None:
    tensors["blocks.0.attn.proj_l.weight"] = numbers(3, 3)


def without_blocks(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith("blocks")]:
        del tensors[name]


def with_a_narrow_block(tensors: Tensors) -> None:
    tensors["blocks.2.attn.qkv.weight"] = numbers(3 * 16, 16)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_query_norm, "q_norm.weight is no part of plain attention"),
        (with_talking_heads, "proj_l.weight is no part of plain attention"),
        (without_blocks, "the names of its attention weights are not known"),
        (with_a_narrow_block, "not 24 wide like the table"),
    ],
)
def test_attention_that_is_not_known_is_refused(
    tmp_path: Path, change: Callable[[Tensors], None], words: str
) -> None:
    tensors = plain()
    change(tensors)
    with pytest.raises(TableError, match="attention_scale=True") as caught:
        convert(tmp_path, tensors)
    assert words in caught.value.message
    assert not (tmp_path / "out.safetensors").exists()


def test_a_text_tower_of_the_same_width_is_never_taken_for_the_image_s(tmp_path: Path) -> None:
    tensors = {n: t for n, t in clip().items() if not n.startswith("visual.transformer")}
    with pytest.raises(TableError, match="are not known"):
        convert(tmp_path, tensors)


def test_a_training_checkpoint_says_that_the_state_of_the_queries_is_copied(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(values) for name, values in plain().items()}
    trained = [name for name, values in tensors.items() if values.is_floating_point()]
    parameters = [torch.nn.Parameter(tensors[name]) for name in trained]
    optimizer = torch.optim.AdamW(parameters)
    sum((p**2).sum() for p in parameters).backward()
    optimizer.step()
    path = tmp_path / "train.pth"
    torch.save({"model": tensors, "optimizer": optimizer.state_dict()}, path)
    made: Any = {"from_": (144, 96), "to": (80, 64), "force": True}
    report = resize_checkpoint(path, output=tmp_path / "out.pth", attention_scale=True, **made)
    (note,) = [n.text for n in report.notes if "--attention-scale" in n.text]
    assert f"the optimizer's state of the {2 * BLOCKS} scaled tensors is copied unchanged" in note
    before, after = torch.load(path), torch.load(tmp_path / "out.pth")
    place = trained.index("blocks.1.attn.qkv.weight")
    for field in ("exp_avg", "exp_avg_sq"):
        kept = after["optimizer"]["state"][place][field]
        assert torch.equal(kept, before["optimizer"]["state"][place][field])
    plainly = resize_checkpoint(path, output=tmp_path / "out.pth", **made)
    assert not any("--attention-scale" in n.text for n in plainly.notes)


def clip_with_words() -> Tensors:
    return {**clip(), "token_embedding.weight": numbers(90, WIDTH)}


def offsets() -> Tensors:
    """A window of 6×4 cells, whose table has one row for each offset."""
    block = "layers.0.blocks.0."
    return {
        f"{block}norm1.weight": numbers(WIDTH),
        f"{block}attn.relative_position_bias_table": numbers(11 * 7, 3),
        f"{block}attn.qkv.weight": numbers(3 * WIDTH, WIDTH),
        f"{block}attn.proj.weight": numbers(WIDTH, WIDTH),
    }


@pytest.mark.parametrize(
    ("make", "made", "words"),
    [
        (offsets, {"from_window": (6, 4), "to_window": (5, 3)}, "adds a relative table"),
        (
            clip_with_words,
            {"to_length": 90, "length_method": "linear"},
            "no learned absolute table",
        ),
    ],
)
def test_a_flag_that_would_have_no_effect_is_refused(
    tmp_path: Path, make: Callable[[], Tensors], made: dict[str, Any], words: str
) -> None:
    source = write_safetensors(tmp_path / "model.safetensors", make())
    output = tmp_path / "out.safetensors"
    with pytest.raises(TableError, match="attention_scale=True") as caught:
        resize_checkpoint(source, output=output, attention_scale=True, **made)
    assert words in caught.value.message
    assert not output.exists()
    assert resize_checkpoint(source, output=output, **made).output == output


@pytest.mark.parametrize(
    "made", [{"to": (288, 192), "to_patch": 32}, {"to_grid": (3, 18)}, {"to_grid": (6, 9)}]
)
def test_as_many_tokens_as_before_are_noted_and_not_recorded(
    tmp_path: Path, made: dict[str, Any]
) -> None:
    tensors = plain()
    source = write_safetensors(tmp_path / "model.safetensors", tensors)
    output = tmp_path / "out.safetensors"
    report = resize_checkpoint(
        source, from_grid=(9, 6), output=output, attention_scale=True, force=True, **made
    )
    (note,) = [n.text for n in report.notes if "--attention-scale" in n.text]
    assert note == (
        "--attention-scale changes nothing here: the number of tokens stays, so the factor is 1."
    )
    assert "attention_scale" not in json.loads(raw_tensors(output)[1]["resize_pos"])["request"]
    name = "blocks.0.attn.qkv.weight"
    assert array(output, name, tensors[name]).tobytes() == tensors[name].tobytes()


def test_a_file_in_which_nothing_changes_is_still_a_success(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "model.safetensors", plain())
    report = resize_checkpoint(source, from_grid=(9, 6), to_grid=(9, 6), attention_scale=True)
    assert report.output is None or not report.output.exists()
    (note,) = [n.text for n in report.notes if "--attention-scale" in n.text]
    assert note.endswith("no table of this file changes.")


def test_a_text_table_that_changes_beside_the_images_is_named(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "model.safetensors", clip_with_words())
    report = resize_checkpoint(
        source,
        to=(80, 64),
        from_=(144, 96),
        to_length=90,
        length_method="linear",
        output=tmp_path / "out.safetensors",
        attention_scale=True,
    )
    (note,) = [n.text for n in report.notes if "--attention-scale" in n.text]
    assert note.startswith("--attention-scale does not apply to positional_embedding:")
