"""More real models with relative tables: towers, backbones, and windows that need a word."""

from __future__ import annotations

from typing import Any

import torch

from tests.oracle.relative_models import (
    DISTANCES,
    LINEAR,
    Layout,
    by_size,
    linear_1d,
    swin_table,
    timm_model,
    timm_table,
)


def hf_levit(image_size: int) -> torch.nn.Module:
    from transformers import LevitConfig, LevitModel

    small = {"hidden_sizes": [16, 24, 32], "depths": [1, 1, 1], "num_attention_heads": [1, 1, 2]}
    down = [["Subsample", 16, 1, 4, 2, 2], ["Subsample", 16, 1, 4, 2, 2]]
    config = LevitConfig(image_size=image_size, key_dim=[16] * 3, down_ops=down, **small)
    return LevitModel(config)  # type: ignore[no-any-return]


def hf_seggpt(image_size: tuple[int, int]) -> torch.nn.Module:
    from transformers import SegGptConfig, SegGptModel

    config = SegGptConfig(
        image_size=list(image_size),
        pretrain_image_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_encoder_output_size=32,
        merge_index=0,
        intermediate_hidden_state_indices=[1],
        decoder_hidden_size=8,
    )
    return SegGptModel(config)  # type: ignore[no-any-return]


def hf_clap(window_size: int) -> torch.nn.Module:
    from transformers import ClapAudioConfig, ClapAudioModel

    config = ClapAudioConfig(
        window_size=window_size,
        spec_size=64,
        num_mel_bins=16,
        patch_embeds_hidden_size=8,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        hidden_size=16,
    )
    return ClapAudioModel(config)  # type: ignore[no-any-return]


def timm_backbone(**options: Any) -> torch.nn.Module:
    import timm

    small = {"embed_dim": 8, "depths": (1, 1, 1), "num_heads": (2, 2, 2)}
    model: torch.nn.Module = timm.create_model(
        "swin_tiny_patch4_window7_224",
        features_only=True,
        feature_cls="list",
        out_indices=(0, 1, 2),
        **small,
        **options,
    )
    return model


S3 = {"embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2)}
SAM = {"embed_dim": 32, "depth": 8, "num_heads": 2, "global_attn_indexes": (1, 3, 5, 7)}

MORE_LAYOUTS = (
    Layout(
        "transformers levit", hf_levit, **by_size(80, 128, 48, key="image_size"), table=DISTANCES
    ),
    Layout(
        "transformers seggpt",
        hf_seggpt,
        source={"image_size": (64, 32)},
        targets=tuple(({"to": s}, {"image_size": s}) for s in ((128, 64), (32, 32), (64, 96))),
        own=linear_1d,
        table=LINEAR,
    ),
    Layout(
        "transformers clap, index stored",
        hf_clap,
        source={"window_size": 4},
        targets=(({"to_window": 7}, {"window_size": 7}), ({"to_window": 3}, {"window_size": 3})),
        own=swin_table,
    ),
    Layout(
        "timm swin as a backbone",
        timm_backbone,
        source={"img_size": 112, "window_size": 7},
        targets=(
            ({"to": 224}, {"img_size": 224, "window_size": 7}),
            ({"to": (80, 112)}, {"img_size": (80, 112), "window_size": 7}),
            ({"to": 192, "to_window": 12}, {"img_size": 192, "window_size": 12}),
        ),
    ),
    *(
        Layout(
            f"timm {name}: windows by stage",
            timm_model(name, **S3),
            **by_size(224, 448, 112, (192, 256)),
            own=timm_table,
        )
        for name in ("swin_s3_small_224", "swin_s3_tiny_224")
    ),
    Layout(
        "timm maxvit, attention in parallel",
        timm_model("maxvit_tiny_pm_256", depths=(1, 1), embed_dim=(32, 64), stem_width=8),
        **by_size(256, 320, 128, (128, 192)),
        own=timm_table,
    ),
    Layout(
        "timm samvit, windows as large as the grid",
        timm_model("samvit_base_patch16", window_size=5, **SAM),
        **by_size(80, 160, (96, 160)),
        own=linear_1d,
        table=LINEAR,
    ),
)
