"""Buffers computed anew, held against those of the library's freshly built model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from resize_pos.api import resize_checkpoint, resize_state_dict
from resize_pos.core.errors import ResizePosError
from tests.oracle.relative_models import SWIN, Tensors, hf_donut, timm_model
from tests.support.builders import raw_tensors

hf_donut_any: Any = hf_donut  # save_pretrained is transformers' own
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def swin_original(size: int | tuple[int, int], window: int) -> Tensors:
    """Give timm's Swin with the buffers that the original code stores, computed by timm."""
    model = timm_model("swin_tiny_patch4_window7_224", **SWIN | {"depths": (2, 2)})(
        img_size=size, window_size=window
    )
    state = dict(model.state_dict())
    for name, module in model.named_modules():
        if hasattr(module, "relative_position_index"):
            state[f"{name}.relative_position_index"] = module.relative_position_index
        if getattr(module, "attn_mask", None) is not None:
            state[f"{name}.attn_mask"] = module.attn_mask
    return state


def beit_original(size: int | tuple[int, int]) -> Tensors:
    """The same for BEiT, whose index has a row and a column for the class token."""
    from timm.layers.pos_embed_rel import gen_relative_position_index

    build = timm_model("beit_base_patch16_224", embed_dim=32, depth=2, num_heads=4)
    model = build(img_size=size)
    state = dict(model.state_dict())
    for name, module in model.named_modules():
        if hasattr(module, "relative_position_bias_table"):
            index = gen_relative_position_index(module.window_size, class_token=True)
            state[f"{name}.relative_position_index"] = index
    return state


def buffers(state: Tensors) -> Tensors:
    return {n: t for n, t in state.items() if "index" in n or "attn_mask" in n}


CASES: list[
    tuple[str, Callable[..., Tensors], tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
] = [
    ("swin, larger image", swin_original, (128, 4), {"to": 192}, (192, 4)),
    ("swin, wide image", swin_original, (128, 4), {"to": (96, 160)}, ((96, 160), 4)),
    ("swin, larger window", swin_original, (128, 4), {"to": 192, "to_window": 6}, (192, 6)),
    ("swin, odd window", swin_original, (112, 7), {"to": 160, "to_window": 5}, (160, 5)),
    ("beit, larger", beit_original, (64,), {"to": 96}, (96,)),
    ("beit, wide", beit_original, (64,), {"to": (48, 96)}, ((48, 96),)),
]


@pytest.mark.parametrize(
    ("build", "source", "asked", "target"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_stored_buffers_become_those_of_the_new_model(
    build: Callable[..., Tensors],
    source: tuple[Any, ...],
    asked: dict[str, Any],
    target: tuple[Any, ...],
) -> None:
    result, expected = resize_state_dict(build(*source), **asked), build(*target)
    assert {n: t.shape for n, t in result.items()} == {n: t.shape for n, t in expected.items()}
    assert buffers(expected)
    for key, tensor in buffers(expected).items():
        assert torch.equal(result[key], tensor), key


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [(128, 32, "the model does not store"), (32, 96, "the model also stores")],
)
def test_a_mask_that_appears_or_vanishes_is_named(
    source: int, target: int, said: str, tmp_path: Path
) -> None:
    """At 32 px the second stage is one window, which is not shifted: no mask is stored there."""
    state, expected = swin_original(source, 4), swin_original(target, 4)
    (odd,) = state.keys() ^ expected.keys()
    path = tmp_path / "swin.safetensors"
    save_file(state, path)
    report = resize_checkpoint(path, to=target)
    assert report.verdict.value == "warn"
    (note,) = (note.text for note in report.notes if note.warning)
    assert said in note and odd in note and "strict=False" in note
    assert report.output is not None
    written = load_file(report.output)
    for name, tensor in buffers(expected).items():
        assert name == odd or torch.equal(written[name], tensor)


def test_a_mask_of_a_window_that_changes_and_vanishes_is_refused() -> None:
    with pytest.raises(ResizePosError, match="has no such mask") as caught:
        resize_state_dict(swin_original(128, 4), to=16)
    assert "remove the attn_mask buffers" in str(caught.value.hint)


@pytest.mark.parametrize("buffer", ["relative_position_index", "attn_mask"])
def test_a_buffer_that_is_not_understood_stops_everything(buffer: str, tmp_path: Path) -> None:
    state = {n: t.clone() for n, t in swin_original(128, 4).items()}
    name = next(n for n in state if n.endswith(buffer))
    state[name].view(-1)[3] = 5
    path = tmp_path / "swin.safetensors"
    save_file(state, path)
    with pytest.raises(ResizePosError, match=r"1 of \d+ values differ"):
        resize_checkpoint(path, to=192, to_window=6)
    assert list(tmp_path.iterdir()) == [path]


def test_buffers_may_be_absent() -> None:
    state = swin_original(128, 4)
    bare = {n: t for n, t in state.items() if n not in buffers(state)}
    result = resize_state_dict(bare, to=192, to_window=6)
    assert {n: t.shape for n, t in result.items()} == {
        n: t.shape for n, t in swin_original(192, 6).items() if n in bare
    }


def test_a_file_with_buffers_is_converted_once_and_then_current(tmp_path: Path) -> None:
    path = tmp_path / "swin.safetensors"
    state = swin_original(128, 4)
    bias = torch.cos(torch.arange(-3, 4) / 3)  # falls off with the distance, as learned ones do
    for name in state:
        if name.endswith("bias_table"):
            state[name] = (bias[:, None] * bias[None, :]).reshape(-1, 1) * torch.tensor([1.0, -2.0])
    save_file(state, path, metadata={"format": "pt"})
    report = resize_checkpoint(path, to=(96, 160), to_window=6)
    assert report.output is not None
    assert report.output.name == "swin-96x160-window6.safetensors"
    written = load_file(report.output)
    expected = swin_original((96, 160), 6)
    for name, tensor in buffers(expected).items():
        assert torch.equal(written[name], tensor)
    again = resize_checkpoint(report.output, to=(96, 160), to_window=6)
    assert again.status.value == "unchanged"
    before, after = raw_tensors(path)[0], raw_tensors(report.output)[0]
    changed = {step.table.name for step in report.plan.changes}
    assert list(before) == list(after)
    assert all(before[name] == after[name] for name in before if name not in changed)
    checks = {check.name for check in report.checks}
    assert "zero offset" in checks and report.verdict.value == "ok"


def test_the_files_that_transformers_writes_are_understood(tmp_path: Path) -> None:
    from transformers import BeitConfig, BeitModel, DonutSwinModel

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    options = {"patch_size": 16, "use_relative_position_bias": True, "intermediate_size": 32}
    for size in (64, 96):
        config = BeitConfig(image_size=size, **small, **options)
        BeitModel(config).save_pretrained(tmp_path / f"beit-{size}")
    report = resize_checkpoint(
        tmp_path / "beit-64" / "model.safetensors", to=96, output=tmp_path / "b.safetensors"
    )
    fresh = load_file(tmp_path / "beit-96" / "model.safetensors")
    written = load_file(tmp_path / "b.safetensors")
    assert {n: t.shape for n, t in written.items()} == {n: t.shape for n, t in fresh.items()}
    assert any("encoder.layer.0.attention" in step.table.name for step in report.plan.changes)
    resized = resize_checkpoint(tmp_path / "beit-64", to=96)
    _, info = BeitModel.from_pretrained(resized.output, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    hf_donut_any(window_size=4).save_pretrained(tmp_path / "donut")
    folder = resize_checkpoint(tmp_path / "donut", to_window=6).output
    loaded, info = DonutSwinModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    expected = dict(hf_donut(window_size=6).state_dict())
    for name, tensor in loaded.state_dict().items():
        if name.endswith("relative_position_index"):
            assert torch.equal(tensor, expected[name])


def clip_archive(side: int, length: int = 7) -> Tensors:
    rows = side * side + 1
    return {
        "visual.positional_embedding": torch.randn(rows, 8),
        "visual.class_embedding": torch.randn(8),
        "visual.conv1.weight": torch.randn(8, 3, 16, 16),
        "positional_embedding": torch.randn(length, 8),
        "token_embedding.weight": torch.randn(11, 8),
        "input_resolution": torch.tensor(16 * side),
        "context_length": torch.tensor(length),
        "vocab_size": torch.tensor(11),
    }


def test_the_scalars_of_a_clip_archive_follow() -> None:
    result = resize_state_dict(clip_archive(4), to=112)
    assert result["input_resolution"].item() == 112
    assert result["input_resolution"].dtype == torch.int64
    assert result["context_length"].item() == 7


def test_a_scalar_cannot_hold_two_sides() -> None:
    with pytest.raises(ResizePosError, match="single number"):
        resize_state_dict(clip_archive(4), to=(64, 96))


def test_position_ids_follow_the_table_beside_them() -> None:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = CLIPVisionModel(CLIPVisionConfig(image_size=64, patch_size=16, **small))
    state = dict(model.state_dict())
    name = next(n for n in state if n.endswith("position_embedding.weight"))
    ids = name.replace("position_embedding.weight", "position_ids")
    state[ids] = torch.arange(17)[None]
    result = resize_state_dict(state, to=(96, 160))
    assert torch.equal(result[ids], torch.arange(61)[None])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("length", [10, 4])
def test_the_causal_mask_follows_the_text_table(dtype: Any, length: int) -> None:
    state = {
        "wte.weight": torch.randn(11, 8),
        "wpe.weight": torch.randn(6, 8),
        "h.0.attn.bias": torch.ones(6, 6).tril().to(dtype)[None, None],
        "h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    result = resize_state_dict(state, to_length=length, length_method="linear")
    expected = torch.ones(length, length).tril().to(dtype)[None, None]
    assert torch.equal(result["h.0.attn.bias"], expected)
    assert result["h.0.attn.masked_bias"] is state["h.0.attn.masked_bias"]


@pytest.mark.parametrize("first", [0, 2])
def test_numbers_of_a_text_table_keep_their_first_one(first: int) -> None:
    state = {
        "embeddings.word_embeddings.weight": torch.randn(11, 8),
        "embeddings.position_embeddings.weight": torch.randn(8, 8),
        "embeddings.position_ids": torch.arange(first, 8)[None],
        "embeddings.token_type_ids": torch.zeros(1, 8 - first, dtype=torch.int64),
    }
    result = resize_state_dict(state, to=12 - first, length_method="linear", prefix=first)
    assert torch.equal(result["embeddings.position_ids"], torch.arange(first, 12)[None])
    assert torch.equal(
        result["embeddings.token_type_ids"], torch.zeros_like(result["embeddings.position_ids"])
    )


def eva_rope(
    grid: tuple[int, int], trained: int, head: int = 16, dtype: Any = torch.float32
) -> Any:
    """EVA-02's construction, written with torch."""
    half = head // 2
    speeds = 1.0 / (10000 ** (torch.arange(0, half, 2)[: half // 2].float() / half))
    axes = []
    for cells in grid:
        angles = torch.arange(cells) / cells * trained
        axes.append((angles[:, None] * speeds[None, :]).repeat_interleave(2, dim=1))
    rows = axes[0][:, None, :].expand(*grid, half)
    columns = axes[1][None, :, :].expand(*grid, half)
    angles = torch.cat([rows, columns], dim=-1).reshape(-1, head)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def eva_state(grid: tuple[int, int], trained: int, dtype: Any = torch.float32) -> Tensors:
    state = {
        "pos_embed": torch.randn(1, grid[0] * grid[1] + 1, 32),
        "cls_token": torch.randn(1, 1, 32),
        "patch_embed.proj.weight": torch.randn(32, 3, 14, 14),
    }
    for prefix in ("rope.", "blocks.0.attn.rope."):
        cosines, sines = eva_rope(grid, trained, dtype=dtype)
        state |= {f"{prefix}freqs_cos": cosines, f"{prefix}freqs_sin": sines}
    return state


@pytest.mark.parametrize(("grid", "to"), [((24, 24), 336), ((8, 8), 112), ((12, 20), (168, 280))])
@pytest.mark.parametrize("trained", [16, 14])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_stored_rotary_angles_are_computed_anew(
    grid: tuple[int, int], to: Any, trained: int, dtype: Any
) -> None:
    result = resize_state_dict(eva_state((16, 16), trained, dtype), to=to)
    cosines, sines = eva_rope(grid, trained, dtype=dtype)
    for prefix in ("rope.", "blocks.0.attn.rope."):
        for name, expected in (("freqs_cos", cosines), ("freqs_sin", sines)):
            got = result[prefix + name]
            assert got.dtype == dtype and got.shape == expected.shape
            # A float32 cosine is right to one unit in the last place, theirs and ours.
            ulp = torch.finfo(dtype).eps
            assert float((got.double() - expected.double()).abs().max()) <= ulp


def test_rotary_angles_of_another_formula_are_refused() -> None:
    state = eva_state((16, 16), 16)
    state["rope.freqs_cos"] = torch.rand_like(state["rope.freqs_cos"])
    with pytest.raises(ResizePosError, match="does not follow EVA-02's rotary formula"):
        resize_state_dict(state, to=336)


@pytest.mark.parametrize("normaliser", [8, 12])
def test_swin_v2_coordinates_keep_the_window_they_were_trained_with(normaliser: int) -> None:
    from timm.layers.pos_embed_rel import gen_relative_log_coords, gen_relative_position_index

    def state(window: int, trained: int) -> Tensors:
        table = gen_relative_log_coords((window, window), (trained, trained))
        return {
            "patch_embed.proj.weight": torch.zeros(8, 3, 4, 4),
            "layers.0.blocks.0.attn.relative_coords_table": table[None],
            "layers.1.blocks.0.attn.relative_coords_table": table[None],
            "layers.0.blocks.0.attn.relative_position_index": gen_relative_position_index(
                (window, window)
            ),
        }

    result = resize_state_dict(state(8, normaliser), to=256, to_window=16)
    expected = state(16, normaliser)
    for name, tensor in expected.items():
        assert torch.equal(result[name], tensor), name


def test_decoupled_tables_and_their_indexes_follow_the_image() -> None:
    def index(side: int, axis: int) -> torch.Tensor:
        line = torch.arange(side)
        one = line[None, :] - line[:, None] + side - 1  # key minus query
        shape = [side, 1, side, 1] if axis == 0 else [1, side, 1, side]
        whole = one.reshape(shape).expand(side, side, side, side).reshape(side**2, side**2)
        full = torch.full((side**2 + 1, side**2 + 1), 2 * side - 1)
        full[1:, 1:] = whole
        full[1:, 0] = 2 * side
        full[0, 0] = 2 * side + 1
        return full

    def state(side: int) -> Tensors:
        stem = "blocks.0.attn.rel_pos_bias."
        return {
            "patch_embed.proj.weight": torch.zeros(8, 3, 14, 14),
            f"{stem}relative_position_bias_for_high": torch.randn(2 * side + 2, 4),
            f"{stem}relative_position_bias_for_width": torch.randn(2 * side + 2, 4),
            f"{stem}relative_position_high_index": index(side, 0),
            f"{stem}relative_position_width_index": index(side, 1),
        }

    source = state(5)
    result, expected = resize_state_dict(source, to=112), state(8)
    for name, tensor in expected.items():
        assert result[name].shape == tensor.shape
        if name.endswith("index"):
            assert torch.equal(result[name], tensor), name
    table = "blocks.0.attn.rel_pos_bias.relative_position_bias_for_high"
    assert torch.equal(result[table][-3:], source[table][-3:])
    assert torch.equal(result[table][7], source[table][4])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("rope_embed.periods", (16,)),
        ("rope.freqs", (2, 3, 4, 8)),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (8,)),
    ],
)
def test_rotary_parameters_that_no_resolution_decides_are_kept_with_the_reason(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    state = eva_state((4, 4), 4)
    state = {n: t for n, t in state.items() if "rope" not in n} | {name: torch.rand(shape)}
    save_file(state, tmp_path / "vit.safetensors")
    report = resize_checkpoint(tmp_path / "vit.safetensors", to=112, dry_run=True)
    step = next(step for step in report.plan.steps if step.table.name == name)
    assert step.action.value == "keep" and "nothing depends on the resolution" in step.reason


def test_the_buffers_are_what_the_definitions_say() -> None:
    """Each formula against a slow definition, on a window that is not square."""
    from resize_pos.core.geometry import Grid
    from resize_pos.core.operations import Extent
    from resize_pos.transforms.derived import _EXACT

    grid = Grid(3, 4)
    cells = [(y, x) for y in range(3) for x in range(4)]
    relative = _EXACT["relative-index"](Extent(grid=grid), (12, 12))
    distance = _EXACT["distance-index"](Extent(grid=grid), (12, 12))
    halved = _EXACT["distance-index"](Extent(grid=grid), (4, 12))
    queries = [(y, x) for y in (0, 2) for x in (0, 2)]
    for i, (y, x) in enumerate(cells):
        for j, (v, u) in enumerate(cells):
            assert relative[i, j] == (y - v + 2) * 7 + (x - u + 3)
            assert distance[i, j] == abs(y - v) * 4 + abs(x - u)
    for i, (y, x) in enumerate(queries):
        for j, (v, u) in enumerate(cells):
            assert halved[i, j] == abs(y - v) * 4 + abs(x - u)
    causal = _EXACT["causal-mask"](Extent(rows=5), (1, 1, 5, 5))
    assert np.array_equal(causal[0, 0], np.tril(np.ones((5, 5), int)))
    assert np.array_equal(_EXACT["positions"](Extent(rows=6, extra=2), (1, 4)), [[2, 3, 4, 5]])
    assert math.isclose(
        float(
            _EXACT["shifted-mask"](
                Extent(grid=Grid(2, 2), blocks=Grid(2, 1), shift=1), (2, 4, 4)
            ).min()
        ),
        -100.0,
    )
