"""Known bugs of the libraries that touch relative values, each shown beside the right answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from resize_pos.api import resize_state_dict
from tests.oracle.relative_models import hf_beit, hf_beit_table, timm_model
from tests.oracle.test_relative_layouts import randomised

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

TABLE = r"relative_position_bias_table$"


def test_bug_6_heads_of_a_3d_table_are_not_stacked_into_rows() -> None:
    from timm.layers import resize_rel_pos_bias_table

    table = torch.randn(4, 13, 13)
    broken = resize_rel_pos_bias_table(table, (12, 12), (4, 23, 23))
    assert tuple(broken.shape) == (92, 23)
    name = "stages.0.blocks.0.attn_block.attn.rel_pos.relative_position_bias_table"
    result = resize_state_dict({name: table}, to=384)[name]
    assert tuple(result.shape) == (4, 23, 23)
    assert torch.allclose(result.reshape(92, 23), broken, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bug_7_a_half_precision_table_stays_half_precision(dtype: torch.dtype) -> None:
    from timm.layers import resize_rel_pos_bias_table

    table = torch.randn(49, 2).to(dtype)
    assert resize_rel_pos_bias_table(table, (7, 7), (169, 2)).dtype == torch.float32
    name = "layers.0.blocks.0.attn.relative_position_bias_table"
    state = {name: table, "patch_embed.proj.weight": torch.zeros(2, 3, 4, 4)}
    assert resize_state_dict(state, to=224, to_window=7)[name].dtype == dtype
    distances = "stages.1.blocks.0.attn.attention_biases"
    half = {distances: torch.randn(2, 49).to(dtype)}
    assert resize_state_dict(half, to_window=12)[distances].dtype == dtype


def test_bug_12_a_window_that_is_not_square_is_read_height_first() -> None:
    model = hf_beit(image_size=(64, 128))
    source = randomised(model, TABLE)
    name = next(n for n in source if n.endswith("relative_position_bias_table"))
    same = resize_state_dict(source, to=(64, 128), from_=(64, 128))
    assert same[name] is source[name]
    result = resize_state_dict(source, to=(96, 160), from_=(64, 128))[name]
    grid = source[name][:-3].reshape(1, 7, 15, -1).permute(0, 3, 1, 2)
    right = F.interpolate(grid, size=(11, 19), mode="bilinear")
    torch.testing.assert_close(
        result[:-3], right.permute(0, 2, 3, 1).reshape(209, -1), rtol=1e-5, atol=1e-5
    )
    # transformers reads the same rows as 15×7, and differs even at the size it was built for.
    bias: Any = model.get_submodule(name.rpartition(".")[0])
    bias.load_state_dict({"relative_position_bias_table": source[name]})
    own = bias((4, 8))[0]
    index = bias.generate_relative_position_index((4, 8))
    stored = source[name][index.reshape(-1)].reshape(33, 33, -1).permute(2, 0, 1)
    assert float((own - stored).abs().max()) > 0.5


def test_bug_20_shrinking_by_the_geometric_rule_is_a_crop_and_is_said() -> None:
    build = timm_model("beit_base_patch16_224", embed_dim=32, depth=1, num_heads=2)
    source = dict(build(img_size=224).state_dict())
    name = "blocks.0.attn.relative_position_bias_table"
    far = torch.arange(-13.0, 14).repeat_interleave(27)
    source[name] = torch.cat([far, torch.zeros(3)])[:, None].repeat(1, 2)
    cropped = resize_state_dict(source, to=112)[name][:-3].reshape(13, 13, 2)
    stretched = resize_state_dict(source, to=112, relative_like="swin")[name][:-3]
    assert float(cropped[0, 0, 0]) > -6.5  # offsets beyond ±6 of ±13 are gone
    assert float(stretched.reshape(13, 13, 2)[0, 0, 0]) < -12


def test_bug_21_the_cubic_rule_works_without_scipys_interp2d() -> None:
    from scipy import interpolate

    with pytest.raises(NotImplementedError):
        interpolate.interp2d([0, 1, 2, 3], [0, 1, 2, 3], np.zeros((4, 4)), kind="cubic")
    from resize_pos.transforms.progression import source_offsets

    name = "blocks.0.attn.relative_position_bias_table"
    table = torch.randn(49 + 3, 2)
    state = {name: table, "patch_embed.proj.weight": torch.zeros(2, 3, 16, 16)}
    result = resize_state_dict(state, to=112, relative_like="beit")[name]
    sites, places = source_offsets(7, 13), np.arange(-6, 6.5)
    for head in range(2):
        values = table[:-3, head].reshape(7, 7).double().numpy()
        fitted = interpolate.RectBivariateSpline(sites, sites, values, s=0)(places, places)
        got = result[:-3, head].reshape(13, 13).numpy()
        np.testing.assert_allclose(got, fitted, atol=1e-6)


def test_bug_23_no_rows_for_the_class_token_means_none() -> None:
    name = "stages.0.blocks.0.attn.w_msa.relative_position_bias_table"
    table = torch.randn(49, 2)
    result = resize_state_dict({name: table}, to_window=7)[name]
    assert tuple(result.shape) == (169, 2)
    assert torch.equal(result[84], table[24])


def test_bug_24_an_absent_index_is_no_error() -> None:
    name = "stages.0.blocks.0.attn.w_msa.relative_position_bias_table"
    index = name.replace("bias_table", "index")
    model_index = torch.arange(16)
    down, right = model_index // 4, model_index % 4
    stored = (down[:, None] - down + 3) * 7 + right[:, None] - right + 3
    bare, whole = {name: torch.randn(49, 2)}, {name: torch.randn(49, 2), index: stored}
    assert set(resize_state_dict(bare, to_window=7)) == {name}
    assert tuple(resize_state_dict(whole, to_window=7)[index].shape) == (49, 49)


def test_transformers_bilinear_is_reproduced_for_square_windows() -> None:
    model, target = hf_beit(image_size=64), hf_beit(image_size=96)
    source = randomised(model, TABLE)
    name = next(n for n in source if n.endswith("relative_position_bias_table"))
    result = resize_state_dict(source, to=96)[name]
    torch.testing.assert_close(result, hf_beit_table(name, source[name], target))
