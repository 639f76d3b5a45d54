"""Exported models at a new size compute what the torch model at that size computes.

Every model is exported by both exporters of torch, with a fixed and with a named batch axis. The
reference is the model built at the new size, with the weights that `resize_state_dict` gives.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
import transformers

from resize_pos import resize_checkpoint, resize_state_dict
from resize_pos.core.errors import ResizePosError

WIDE, TALL = (48, 80), (112, 64)  # 3×5 and 7×4 patches of 16
TURNED = (80, 48)  # 5×3: as many cells as WIDE
SQUARE, LARGER = (64, 64), (96, 96)  # these models of transformers know only squares


def _timm(name: str, **options: Any) -> Callable[[Any], torch.nn.Module]:
    small = {"depth": 2, "embed_dim": 32, "num_heads": 4, "num_classes": 10, **options}
    return lambda size: timm.create_model(name, img_size=size, **small)


class _Hidden(torch.nn.Module):
    """A model of transformers that returns its last hidden state, and nothing else."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.model(pixels).last_hidden_state


def _hf(kind: str, **options: Any) -> Callable[[Any], torch.nn.Module]:
    def build(size: Any) -> torch.nn.Module:
        config = getattr(transformers, f"{kind}Config")(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            patch_size=16,
            image_size=size[0] if size in (SQUARE, LARGER) else size,
        )
        return _Hidden(getattr(transformers, f"{kind}Model")(config, **options))

    return build


def _dense(size: Any) -> torch.nn.Module:
    """Features of every patch, as a map of classes at the size of the image."""
    return _Dense(timm.create_model("vit_tiny_patch16_224", img_size=size, **SMALL_FEATURES))


SMALL_FEATURES: dict[str, Any] = {
    "depth": 2,
    "embed_dim": 32,
    "num_heads": 4,
    "features_only": True,
    "out_indices": (0, 1),
}


class _Dense(torch.nn.Module):
    def __init__(self, features: torch.nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = torch.nn.Conv2d(32, 5, 1)

    def forward(self, pixels: torch.Tensor) -> Any:
        maps = self.head(self.features(pixels)[-1])
        return torch.nn.functional.interpolate(maps, scale_factor=16, mode="bilinear")


def _beit(size: Any) -> torch.nn.Module:
    config = transformers.BeitConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=size[0],
        use_relative_position_bias=True,
    )
    return _Hidden(transformers.BeitModel(config, add_pooling_layer=False))


def _depth_anything(size: Any) -> torch.nn.Module:
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        mlp_ratio=2,
        patch_size=14,
        image_size=size[0],
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        patch_size=14,
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
    )
    return _Depth(transformers.DepthAnythingForDepthEstimation(config))


class _Depth(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.model(pixels).predicted_depth


class _Encoder(torch.nn.Module):
    """A vision transformer of torch's own layers, as in torchvision and in many tutorials."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        rows = (size[0] // 16) * (size[1] // 16) + 1
        self.patch_embed = torch.nn.Conv2d(3, 32, 16, 16)
        self.cls_token = torch.nn.Parameter(torch.randn(1, 1, 32))
        self.pos_embed = torch.nn.Parameter(torch.randn(1, rows, 32))
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.blocks = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, pixels: torch.Tensor) -> Any:
        patches = self.patch_embed(pixels).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(pixels.shape[0], -1, -1), patches], 1)
        return self.blocks(tokens + self.pos_embed)


def _yolos(size: Any) -> torch.nn.Module:
    """Detection tokens stand after the patches, and have rows in the table."""
    config = transformers.YolosConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=list(size),
        num_detection_tokens=10,
        use_mid_position_embeddings=False,
    )
    return _Hidden(transformers.YolosModel(config, add_pooling_layer=False))


def _registers(size: Any) -> torch.nn.Module:
    """Registers have no row in the table, so the attention has more tokens than it."""
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        mlp_ratio=2,
        patch_size=14,
        image_size=size[0],
        num_register_tokens=4,
    )
    return _Hidden(transformers.Dinov2WithRegistersModel(config))


def _dpt(size: Any) -> torch.nn.Module:
    config = transformers.DPTConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=size[0],
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        is_hybrid=False,
    )
    return _Depth(transformers.DPTForDepthEstimation(config))


class _Siglip2(torch.nn.Module):
    """Its patches are cut before the model, and its table follows the shape that it is told."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.grid = (size[0] // 16, size[1] // 16)
        config = transformers.Siglip2VisionConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            num_patches=16,
        )
        self.model = transformers.Siglip2VisionModel(config)

    def forward(self, pixels: torch.Tensor) -> Any:
        height, width = self.grid
        cut = pixels.reshape(1, 3, height, 16, width, 16).permute(0, 2, 4, 3, 5, 1)
        return self.model(
            pixel_values=cut.reshape(1, height * width, 768),
            pixel_attention_mask=torch.ones(1, height * width, dtype=torch.long),
            spatial_shapes=torch.tensor([[height, width]]),
        ).last_hidden_state


def lively(model: torch.nn.Module) -> torch.nn.Module:
    """Give every vector and every table values that count.

    New models have scales of 1e-5 and tables of zeros, so that a wrong table would change nothing.
    """
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1 and "norm" not in name:
                weight.copy_(torch.randn(weight.shape, generator=rng).abs() * 0.3)
            elif weight.ndim > 1 and ("pos" in name or not weight.any()):
                weight.copy_(torch.randn(weight.shape, generator=rng) * 0.5)
    return model.eval()


def _mae(size: Any) -> torch.nn.Module:
    """The encoder of an autoencoder, which draws the patches that it keeps."""
    config = transformers.ViTMAEConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=size[0],
        mask_ratio=0.0,
    )
    return _Hidden(transformers.ViTMAEModel(config))


def _eva(size: Any) -> torch.nn.Module:
    model: torch.nn.Module = timm.create_model(
        "eva02_tiny_patch14_224",
        img_size=size,
        depth=2,
        embed_dim=48,
        num_heads=4,
        num_classes=5,
    )
    return model


def _convnext(size: Any) -> torch.nn.Module:
    model: torch.nn.Module = timm.create_model(
        "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=5
    )
    return model


# Model → how to build it, the two sizes, and what must be stated.
MODELS: dict[str, tuple[Callable[[Any], torch.nn.Module], Any, Any, dict[str, Any]]] = {
    "timm vit": (_timm("vit_tiny_patch16_224"), WIDE, TALL, {}),
    "timm deit3": (_timm("deit3_small_patch16_224"), WIDE, TALL, {}),
    "timm siglip": (_timm("vit_base_patch16_siglip_224"), WIDE, TALL, {}),
    "timm vit, one side": (_timm("vit_tiny_patch16_224"), (96, 96), (64, 96), {}),
    "timm vit, turned": (_timm("vit_tiny_patch16_224"), WIDE, TURNED, {}),
    "timm dense features": (_dense, WIDE, TALL, {}),
    "timm dense features, turned": (_dense, WIDE, TURNED, {}),
    "timm deit, distilled": (_timm("deit_tiny_distilled_patch16_224"), WIDE, TALL, {}),
    "timm clip": (_timm("vit_base_patch16_clip_224"), WIDE, TALL, {}),
    "timm registers": (_timm("vit_medium_patch16_reg4_gap_256"), WIDE, TALL, {}),
    "timm cait": (_timm("cait_xxs24_224"), WIDE, TALL, {}),
    "timm dinov2": (_timm("vit_small_patch14_reg4_dinov2"), (42, 70), (98, 56), {}),
    "transformers vit": (_hf("ViT", add_pooling_layer=False), WIDE, TALL, {}),
    "torch encoder": (_Encoder, WIDE, TALL, {}),
    # The class and the distillation token are folded into one constant; the graph says where it is.
    "transformers deit": (_hf("DeiT", add_pooling_layer=False), WIDE, TALL, {}),
    "transformers yolos": (_yolos, WIDE, TALL, {}),
    "transformers dinov2, registers": (_registers, (56, 56), (84, 84), {}),
    "transformers dpt": (_dpt, SQUARE, LARGER, {}),
    "transformers clip": (_hf("CLIPVision"), SQUARE, LARGER, {}),
    "transformers siglip": (_hf("SiglipVision"), SQUARE, LARGER, {}),
    "transformers i-jepa": (_hf("IJepa"), SQUARE, LARGER, {}),
    "transformers depth-anything": (_depth_anything, (56, 56), (84, 84), {}),
}
# Model, whether by dynamo, with a named batch → the words with which it is refused.
UNKNOWN = {
    # The older exporter folds the resampling of the table into a tensor without a name.
    ("transformers depth-anything", False, False): r"node /model/backbone/embeddings/Add \(Add\)",
    ("transformers depth-anything", False, True): r"node Reshape /model/backbone/embeddings/Resha",
    ("transformers dpt", False, False): r"Reshape_\d+ F32 \[16, 32\] may be a position table",
    ("transformers dpt", False, True): r"Reshape_\d+ F32 \[16, 32\] may be a position table",
}
# Both tokens are one constant here, so 17 rows may be 1 + 4×4: refused, until these say it.
TOLD = {("timm deit, distilled", True, False), ("transformers deit", True, False)}
# Model → its size, a new one, and the words with which each exporter's graph is refused.
REFUSED: dict[str, tuple[Callable[[Any], torch.nn.Module], Any, Any, dict[bool, str]]] = {
    "timm swin": (
        lambda size: timm.create_model(
            "swin_tiny_patch4_window7_224",
            img_size=size,
            embed_dim=16,
            depths=(2,),
            num_heads=(2,),
            num_classes=5,
        ),
        (56, 56),
        (112, 112),
        {
            False: r"onnx::Add_\d+ F32 \[1, 2, 49, 49\]",
            True: r"attn_mask F32 \[4, 49, 49\] masks the windows",
        },
    ),
    # The dynamo exporter of torch 2.13 cannot export BEiT.
    "transformers beit": (
        _beit,
        SQUARE,
        LARGER,
        {False: r"onnx::Resize_\d+ F32 \[1, 4, 7, 7\] may hold one number per head"},
    ),
    # The older exporter cannot export EVA-02. Its rotary tables are folded into constants.
    "timm eva02": (_eva, (42, 70), (98, 56), {True: r"not consistent .*: node node_mul \(Mul\)"}),
    # No table: the rotary angles of every patch are a constant.
    "timm dinov3": (
        lambda size: timm.create_model(
            "vit_small_patch16_dinov3", img_size=size, depth=2, embed_dim=32, num_heads=4
        ),
        WIDE,
        TALL,
        {True: r"cat F32 \[15, 16\] may hold one number"},
    ),
    "timm rope, turned": (
        lambda size: timm.create_model(
            "vit_base_patch16_rope_ape_224", img_size=size, depth=2, embed_dim=48, num_heads=4
        ),
        WIDE,
        TURNED,
        {True: r"node Mul node_mul multiplies by rope.pos_embed"},
    ),
    "timm convnext": (
        _convnext,
        (64, 96),
        (96, 64),
        {False: "input x has 64x96 px, not 96x64", True: "input x has 64x96 px, not 96x64"},
    ),
    "transformers vit-mae": (
        _mae,
        SQUARE,
        LARGER,
        {
            False: r"node RandomUniform\w* .* draws random numbers",
            True: r"node RandomUniform\w* .* draws random numbers",
        },
    ),
}


def export(model: torch.nn.Module, size: Any, path: Path, *, dynamo: bool, named: bool) -> None:
    image = torch.randn(2 if named else 1, 3, *size)
    options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamo": dynamo}
    if dynamo:
        options["verbose"] = False
        if named:
            options["dynamic_shapes"] = ({0: torch.export.Dim("n", min=2)},)
    else:
        options["opset_version"] = 17
        if named:
            options["dynamic_axes"] = {"x": {0: "n"}, "y": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of their own deprecations
        torch.onnx.export(model, (image,), path, **options)


@pytest.fixture(autouse=True)
def quiet_exporters() -> Any:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    yield
    logging.disable(before)


# The dynamo exporter takes seconds for each model; these differ little from others for it.
LONG = (
    "timm vit, one side",
    "timm dense features",
    "timm deit, distilled",
    "timm clip",
    "timm cait",
    "transformers i-jepa",
    "transformers depth-anything",
    "timm vit, turned",
    "timm dense features, turned",
    "transformers deit",
    "transformers dinov2, registers",
)
NOT_EXPORTED = {("transformers dinov2, registers", False)}  # that exporter cannot
CASES = [
    pytest.param(name, dynamo, marks=pytest.mark.slow if dynamo and name in LONG else ())
    for name in MODELS
    for dynamo in (False, True)
    if (name, dynamo) not in NOT_EXPORTED
]


@pytest.mark.parametrize("named", [False, True], ids=["fixed batch", "named batch"])
@pytest.mark.parametrize(("name", "dynamo"), CASES)
def test_an_export_computes_what_the_model_computes(
    name: str, dynamo: bool, named: bool, tmp_path: Path
) -> None:
    build, old, new, stated = MODELS[name]
    torch.manual_seed(0)
    source, target = lively(build(old)), build(new).eval()
    path = tmp_path / "m.onnx"
    export(source, old, path, dynamo=dynamo, named=named)
    if (name, dynamo, named) in UNKNOWN:
        with pytest.raises(ResizePosError, match=UNKNOWN[name, dynamo, named]):
            resize_checkpoint(path, to=new, **stated)
        return
    if (name, dynamo, named) in TOLD:
        with pytest.raises(ResizePosError, match="no input of the model has 64 pixels"):
            resize_checkpoint(path, to=new, **stated)
        stated = {"from_": old, "prefix": 2}
    report = resize_checkpoint(path, to=new, **stated)
    assert report.output is not None
    output = report.output / path.name if report.output.is_dir() else report.output
    state = resize_state_dict(source.state_dict(), to=new, **{"from_": old, **stated})
    target.load_state_dict(state, strict=True)
    image = torch.randn(3 if named else 1, 3, *new)
    with torch.no_grad():
        expected = target(image).numpy()
    assert np.ptp(expected) > 1e-3, "a constant result shows nothing"
    onnx.checker.check_model(output, full_check=True)
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": image.numpy()})
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=2e-5)


def test_siglip_2_gets_the_table_that_it_makes_itself(tmp_path: Path) -> None:
    """Its export holds the table for one grid; the model resizes it with a bilinear kernel."""
    torch.manual_seed(0)
    source, target = lively(_Siglip2(SQUARE)), _Siglip2((96, 64)).eval()
    target.load_state_dict(source.state_dict())
    path = tmp_path / "m.onnx"
    export(source, SQUARE, path, dynamo=True, named=False)
    report = resize_checkpoint(path, to=(96, 64), method="bilinear")
    assert report.output is not None
    output = report.output / path.name
    image = torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        expected = target(image).numpy()
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": image.numpy()})
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "dynamo"), [(name, dynamo) for name in REFUSED for dynamo in REFUSED[name][3]]
)
def test_windows_are_refused_and_the_tensor_is_named(
    name: str, dynamo: bool, tmp_path: Path
) -> None:
    """The bias of a window is folded with its lookup: its values alone do not say the offsets."""
    build, old, new, words = REFUSED[name]
    path = tmp_path / "m.onnx"
    export(build(old).eval(), old, path, dynamo=dynamo, named=False)
    with pytest.raises(ResizePosError, match=words[dynamo]):
        resize_checkpoint(path, to=new)


BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"


def matrix() -> str:
    """Write the table of docs/onnx.md: every cell is a case of the tests above."""
    lines = ["| model | from | to | legacy exporter | dynamo exporter |", "|---|---|---|---|---|"]
    for name, (_, old, new, stated) in MODELS.items():
        given = "".join(f" `--{key.rstrip('_')}`" for key in stated)
        result = f"equal{f', with{given}' if given else ''}"
        results = [
            "cannot be exported"
            if (name, dynamo) in NOT_EXPORTED
            else "refused, the place is named"
            if (name, dynamo, False) in UNKNOWN
            else f"{result}; with a named batch refused, the place is named"
            if (name, dynamo, True) in UNKNOWN
            else result
            for dynamo in (False, True)
        ]
        lines.append(f"| {name} | {_words(old)} | {_words(new)} | {' | '.join(results)} |")
    for name, (_, old, new, words) in REFUSED.items():
        results = [
            "refused, the place is named" if dynamo in words else "cannot be exported"
            for dynamo in (False, True)
        ]
        lines.append(f"| {name} | {_words(old)} | {_words(new)} | {' | '.join(results)} |")
    return "\n".join(lines)


def _words(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def write_matrix() -> None:
    """Write the table into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{matrix()}\n\n{END}{after}", encoding="utf-8")


def test_the_page_shows_the_matrix() -> None:
    """To write it: python -c 'from tests.oracle.test_onnx_exports import …; write_matrix()'."""
    shown = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert shown.strip() == matrix()
