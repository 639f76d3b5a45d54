"""Real models with relative tables, built small: constructors, and each library's own resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

Tensors = dict[str, torch.Tensor]
Build = Callable[..., torch.nn.Module]
Resize = Callable[[str, torch.Tensor, torch.nn.Module], torch.Tensor]


def timm_model(name: str, **fixed: Any) -> Build:
    def build(**options: Any) -> torch.nn.Module:
        import timm

        model: torch.nn.Module = timm.create_model(name, num_classes=0, **fixed, **options)
        return model

    return build


def timm_table(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """timm's own resize of a flat table; of a 3-D one, head by head (its own is broken)."""
    from timm.layers import resize_rel_pos_bias_table

    module: Any = model.get_submodule(name.rpartition(".")[0])
    window, target_table = module.window_size, module.relative_position_bias_table
    if table.ndim == 2:
        shape = list(target_table.shape)
        return resize_rel_pos_bias_table(table, window, tuple(shape))  # type: ignore[no-any-return]
    size = (2 * window[0] - 1, 2 * window[1] - 1)
    heads = [
        resize_rel_pos_bias_table(head.reshape(-1, 1), window, (size[0] * size[1], 1))
        for head in table
    ]
    return torch.stack([head.reshape(size) for head in heads])


def timm_distances(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    from timm.layers import resize_rel_pos_bias_table_levit

    target = dict(model.named_parameters())[name]
    return resize_rel_pos_bias_table_levit(table.T, target.shape[::-1]).T  # type: ignore[no-any-return]


def linear_1d(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """What SAM, detectron2 and timm's MViTv2 do."""
    target = dict(model.named_parameters())[name]
    rows = table.T[None]
    return F.interpolate(rows, size=target.shape[0], mode="linear")[0].T


def hf_beit_table(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """transformers' run-time resize; the reshape is only right for square sources."""
    target = dict(model.named_parameters())[name]
    old, new = (round((rows.shape[0] - 3) ** 0.5) for rows in (table, target))
    grid = table[:-3].reshape(1, old, old, -1).permute(0, 3, 1, 2)
    resized = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([resized.permute(0, 2, 3, 1).reshape(new * new, -1), table[-3:]])


def swin_table(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """Swin's own utils.load_pretrained."""
    target = dict(model.named_parameters())[name]
    old, new = (round(rows.shape[0] ** 0.5) for rows in (table, target))
    grid = table.T.reshape(1, -1, old, old)
    return F.interpolate(grid, size=(new, new), mode="bicubic").reshape(-1, new * new).T


def hf_beit(**options: Any) -> torch.nn.Module:
    from transformers import BeitConfig, BeitModel

    config = BeitConfig(patch_size=16, use_relative_position_bias=True, **_SMALL, **options)
    return BeitModel(config)  # type: ignore[no-any-return]


def hf_beit_shared(**options: Any) -> torch.nn.Module:
    from transformers import Data2VecVisionConfig, Data2VecVisionModel

    shared = {"use_shared_relative_position_bias": True, "use_relative_position_bias": False}
    config = Data2VecVisionConfig(patch_size=16, **shared, **_SMALL, **options)
    return Data2VecVisionModel(config)  # type: ignore[no-any-return]


def hf_swin(**options: Any) -> torch.nn.Module:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=64, embed_dim=8, depths=[1, 1], num_heads=[2, 2], **options)
    return SwinModel(config)  # type: ignore[no-any-return]


def hf_donut(**options: Any) -> torch.nn.Module:
    from transformers import DonutSwinConfig, DonutSwinModel

    config = DonutSwinConfig(image_size=64, embed_dim=8, depths=[1, 1], num_heads=[2, 2], **options)
    return DonutSwinModel(config)  # type: ignore[no-any-return]


def hf_sam(image_size: int) -> torch.nn.Module:
    from transformers import SamVisionConfig, SamVisionModel

    config = SamVisionConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        output_channels=8,
        mlp_dim=32,
        image_size=image_size,
        window_size=5,
        global_attn_indexes=[1],
    )
    return SamVisionModel(config)  # type: ignore[no-any-return]


def tv_swin(window: int, version: int = 1) -> torch.nn.Module:
    from torchvision.models.swin_transformer import (
        PatchMerging,
        PatchMergingV2,
        SwinTransformer,
        SwinTransformerBlock,
        SwinTransformerBlockV2,
    )

    block, merge = (
        (SwinTransformerBlock, PatchMerging)
        if version == 1
        else (SwinTransformerBlockV2, PatchMergingV2)
    )
    return SwinTransformer(  # type: ignore[no-any-return]
        [4, 4], 8, [1, 2], [2, 2], [window, window], block=block, downsample_layer=merge
    )


def tv_swin3d(window: int) -> torch.nn.Module:
    from torchvision.models.video.swin_transformer import SwinTransformer3d

    return SwinTransformer3d(  # type: ignore[no-any-return]
        [2, 4, 4], 8, [1, 1], [2, 2], [3, window, window]
    )


def deep_table(name: str, table: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """Swin's bicubic for each offset in time."""
    target = dict(model.named_parameters())[name]
    return torch.cat([swin_slice(part, target.shape[0] // 5) for part in table.chunk(5)])


def swin_slice(table: torch.Tensor, rows: int) -> torch.Tensor:
    old, new = round(table.shape[0] ** 0.5), round(rows**0.5)
    grid = table.T.reshape(1, -1, old, old)
    return F.interpolate(grid, size=(new, new), mode="bicubic").reshape(-1, new * new).T


def tv_maxvit(partition: int) -> torch.nn.Module:
    from torchvision.models.maxvit import MaxVit

    size = (partition * 8, partition * 8)
    return MaxVit(size, 8, partition, [8, 16], [1, 1], 8, 0.0)  # type: ignore[no-any-return]


def tv_mvit(size: int) -> torch.nn.Module:
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    blocks = [
        MSBlockConfig(1, 8, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 4, 4]),
        MSBlockConfig(2, 16, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
        MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 1, 1]),
    ]
    return MViT(  # type: ignore[no-any-return]
        (size, size), 4, blocks, True, False, rel_pos_embed=True, proj_after_attn=True
    )


def timm_mvit(img_size: int) -> torch.nn.Module:
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

    config = MultiScaleVitCfg(depths=(1, 2, 1), embed_dim=8)
    return MultiScaleVit(config, img_size=img_size, num_classes=0)  # type: ignore[no-any-return]


def timm_gcvit(img_size: int | tuple[int, int]) -> torch.nn.Module:
    from timm.models.gcvit import GlobalContextVit

    return GlobalContextVit(  # type: ignore[no-any-return]
        img_size=img_size, num_classes=0, embed_dim=8, depths=(2, 2, 2, 2), num_heads=(1, 1, 1, 1)
    )


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}


@dataclass(frozen=True, eq=False)
class Layout:
    """One model to build at a source and at targets, and what to ask for."""

    name: str
    build: Build
    source: Mapping[str, Any]
    # what to ask of us → how to build the library's model for it
    targets: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]
    own: Resize | None = None
    table: str = r"relative_position_bias_table$"
    options: Mapping[str, Any] = field(default_factory=dict)
    square_own: bool = False  # the library's resize is only right for square windows

    def built(self, options: Mapping[str, Any]) -> torch.nn.Module:
        """Build a model once: initialising weights that nobody looks at takes the time."""
        return _built(self.build, tuple(options.items()))


@cache
def _built(build: Build, options: tuple[tuple[str, Any], ...]) -> torch.nn.Module:
    return build(**dict(options))


def by_size(source: int, *sizes: int | tuple[int, int], key: str = "img_size") -> Any:
    """Ask for image sizes: the same number goes to us and to the library."""
    return {"source": {key: source}, "targets": tuple(({"to": s}, {key: s}) for s in sizes)}


SWIN = {"embed_dim": 8, "depths": (1, 1, 2), "num_heads": (2, 2, 2)}
SAM = {"embed_dim": 32, "depth": 3, "num_heads": 2, "window_size": 5, "global_attn_indexes": (1,)}
DISTANCES, LINEAR = r"attention_biases$", r"rel_pos_[hw]$"

LAYOUTS = (
    Layout(
        "timm beit",
        timm_model("beit_base_patch16_224", embed_dim=32, depth=2, num_heads=4),
        **by_size(96, 160, 48, (64, 128)),
        own=timm_table,
    ),
    Layout(
        "timm beit, shared bias",
        timm_model(
            "beitv2_base_patch16_224",
            embed_dim=32,
            depth=2,
            num_heads=4,
            use_rel_pos_bias=False,
            use_shared_rel_pos_bias=True,
        ),
        **by_size(96, 160, 48, (64, 128)),
        own=timm_table,
    ),
    Layout(
        "timm beit with an absolute table",
        timm_model(
            "beit_base_patch16_224", embed_dim=32, depth=1, num_heads=4, use_abs_pos_emb=True
        ),
        **by_size(96, 160, 48, (64, 128)),
        own=timm_table,
    ),
    Layout(
        "timm swin",
        timm_model("swin_tiny_patch4_window7_224", **SWIN),
        source={"img_size": 112, "window_size": 7},
        targets=(
            ({"to": 224}, {"img_size": 224, "window_size": 7}),
            ({"to": 64}, {"img_size": 64, "window_size": 7}),
            ({"to": (80, 112)}, {"img_size": (80, 112), "window_size": 7}),
            ({"to": 192, "to_window": 12}, {"img_size": 192, "window_size": 12}),
            ({"to": 112, "to_window": (4, 6)}, {"img_size": 112, "window_size": (4, 6)}),
        ),
        own=timm_table,
    ),
    Layout(
        "timm swin, last stage cut down",
        timm_model("swin_tiny_patch4_window7_224", **SWIN),
        source={"img_size": 80, "window_size": 7},
        targets=(({"to": 224}, {"img_size": 224, "window_size": 7}),),
        own=timm_table,
    ),
    Layout(
        "timm maxvit, 3-D tables",
        timm_model("maxvit_tiny_tf_224", depths=(1, 1), embed_dim=(32, 64), stem_width=8),
        **by_size(224, 288, 128, (128, 192)),
        own=timm_table,
    ),
    Layout(
        "timm maxvit, flat tables",
        timm_model("maxvit_nano_rw_256", depths=(1, 1), embed_dim=(32, 64), stem_width=8),
        **by_size(256, 320, 128, (128, 192)),
        own=timm_table,
    ),
    Layout(
        "timm coatnet",
        timm_model("coatnet_pico_rw_224", depths=(1, 1, 1, 1), embed_dim=(32, 32, 32, 64)),
        **by_size(128, 208, 96, (96, 160)),
        own=timm_table,
    ),
    Layout(
        "timm gcvit",
        timm_gcvit,
        **by_size(96, 160, 64, (64, 128)),
        own=timm_table,
    ),
    Layout(
        "timm samvit",
        timm_model("samvit_base_patch16", **SAM),
        **by_size(128, 192, 64, (96, 160)),
        own=linear_1d,
        table=LINEAR,
    ),
    Layout(
        "transformers sam",
        hf_sam,
        **by_size(128, 192, 64, key="image_size"),
        own=linear_1d,
        table=LINEAR,
    ),
    Layout(
        "timm mvitv2",
        timm_mvit,
        **by_size(128, 224, 64),
        own=linear_1d,
        table=LINEAR,
    ),
    Layout(
        "torchvision mvitv2",
        tv_mvit,
        source={"size": 64},
        targets=(({"to": 96}, {"size": 96}), ({"to": 32}, {"size": 32})),
        own=linear_1d,
        table=LINEAR,
    ),
    Layout(
        "timm levit", timm_model("levit_128s"), **by_size(112, 160, 80, (96, 208)), table=DISTANCES
    ),
    Layout(
        "timm levit, stem of stride 8",
        timm_model("levit_384_s8"),
        **by_size(64, 96, (48, 112)),
        table=DISTANCES,
    ),
    Layout(
        "timm efficientformer v2",
        timm_model("efficientformerv2_s0"),
        **by_size(128, 224, 96, (96, 160)),
        table=DISTANCES,
    ),
    Layout(
        "timm efficientvit-msra",
        timm_model("efficientvit_m0"),
        **by_size(224, 448, 128),
        table=DISTANCES,
    ),
    Layout(
        "timm tinyvit",
        timm_model(
            "tiny_vit_5m_224",
            embed_dims=(8, 16, 32, 64),
            depths=(1, 1, 1, 1),
            num_heads=(1, 2, 2, 2),
        ),
        source={"window_sizes": (7, 7, 14, 7)},
        targets=(
            ({"to_window": 12}, {"window_sizes": (12, 12, 24, 12)}),
            ({"to_window": 4}, {"window_sizes": (4, 4, 8, 4)}),
            ({"to": 512}, {"window_sizes": (7, 7, 14, 7)}),
        ),
        own=timm_distances,
        table=DISTANCES,
    ),
    Layout(
        "timm efficientformer, index stored",
        timm_model("efficientformer_l1"),
        source={},
        targets=(({"to": 448}, {}),),
        table=DISTANCES,
    ),
    Layout(
        "timm botnet",
        timm_model("botnet26t_256"),
        **by_size(128, 192, 96, (96, 160)),
        own=linear_1d,
        table=r"_rel$",
    ),
    Layout("timm halonet", timm_model("halonet26t"), {}, (({"to": 320}, {}),), table=r"_rel$"),
    Layout(
        "timm lambda",
        timm_model("lambda_resnet26rpt_256"),
        **by_size(128, 192, 96, (96, 160)),
        table=r"self_attn\.pos_emb$",
    ),
    Layout(
        "transformers beit",
        hf_beit,
        **by_size(96, 160, 48, (64, 128), key="image_size"),
        own=hf_beit_table,
        square_own=True,
    ),
    Layout(
        "transformers data2vec, shared bias",
        hf_beit_shared,
        **by_size(96, 160, (64, 128), key="image_size"),
        own=hf_beit_table,
        square_own=True,
    ),
    Layout(
        "transformers swin",
        hf_swin,
        source={"window_size": 4},
        targets=(
            ({"to": 128}, {"window_size": 4}),
            ({"to_window": 7}, {"window_size": 7}),
            ({"to_window": 3}, {"window_size": 3}),
        ),
        own=swin_table,
    ),
    Layout(
        "transformers donut, index stored",
        hf_donut,
        source={"window_size": 4},
        targets=(({"to_window": 7}, {"window_size": 7}), ({"to_window": 3}, {"window_size": 3})),
        own=swin_table,
    ),
    Layout(
        "torchvision swin, flat index stored",
        tv_swin,
        source={"window": 5},
        targets=(
            ({"to": 448}, {"window": 5}),
            ({"to_window": 7}, {"window": 7}),
            ({"to_window": 3}, {"window": 3}),
        ),
        own=swin_table,
    ),
    Layout(
        "torchvision swin v2, coordinates and index stored",
        tv_swin,
        source={"window": 5, "version": 2},
        targets=(
            ({"to_window": 7}, {"window": 7, "version": 2}),
            ({"to_window": 3}, {"window": 3, "version": 2}),
        ),
        table=r"relative_coords_table$",
    ),
    Layout(
        "torchvision swin3d, index stored",
        tv_swin3d,
        source={"window": 4},
        targets=(
            ({"to": 448}, {"window": 4}),
            ({"to_window": 6}, {"window": 6}),
            ({"to_window": 3}, {"window": 3}),
        ),
        own=deep_table,
    ),
    Layout(
        "torchvision maxvit, index stored",
        tv_maxvit,
        source={"partition": 4},
        targets=(({"to_window": 7}, {"partition": 7}), ({"to_window": 3}, {"partition": 3})),
        own=swin_table,
    ),
)
