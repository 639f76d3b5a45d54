"""Kimi K2.5 in transformers: its tower interpolates in a grid whose sides the config states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resize_pos.api import resize_checkpoint
from tests.vlm.seen import keys

pytestmark = pytest.mark.filterwarnings("ignore")


def test_only_the_sides_of_the_grid_change(tmp_path: Path) -> None:
    import transformers as t
    from transformers.models.kimi_k25 import modeling_kimi_k25 as kimi

    vision = {
        "patch_size": 4,
        "pos_emb_height": 6,
        "pos_emb_width": 10,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
    }
    text = t.DeepseekV3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        qk_nope_head_dim=8,
        first_k_dense_replace=1,
    )
    config = kimi.Kimi_K25Config(
        text_config=text.to_dict(), vision_config=vision, projection_hidden_size=32
    )
    source, output = tmp_path / "old", tmp_path / "new"
    kimi.Kimi_K25ForConditionalGeneration(config).save_pretrained(source)
    kept = resize_checkpoint(source, to=64, output=tmp_path / "kept", dry_run=True)
    assert not kept.plan.changes and not kept.plan.config_edits
    resize_checkpoint(source, to_grid="8x12", reference_grids="resize", output=output)
    _, found = kimi.Kimi_K25ForConditionalGeneration.from_pretrained(
        output, output_loading_info=True
    )
    assert not any(found.values())
    before, after = (json.loads((each / "config.json").read_text()) for each in (source, output))
    assert list(keys(before)) == list(keys(after))
    assert after["vision_config"] == before["vision_config"] | {
        "pos_emb_height": 8,
        "pos_emb_width": 12,
    }
