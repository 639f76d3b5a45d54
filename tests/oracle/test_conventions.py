"""Each convention against the library it is named after, called on its own ground."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from resize_pos.core.axes import Layout
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.transforms.absolute import resize_absolute

PATCH, CHANNELS = 4, 16
Single = NDArray[np.float32]
Library = Callable[[Single, Grid, Grid], Single]  # (rows, channels), from, to → (rows, channels)


def timm(table: Single, source: Grid, target: Grid) -> Single:
    from timm.layers import resample_abs_pos_embed

    old, new = [source.height, source.width], [target.height, target.width]
    rows = torch.from_numpy(table)[None]
    return _rows(resample_abs_pos_embed(rows, new, old_size=old, num_prefix_tokens=1))


def hf_vit(table: Single, source: Grid, target: Grid) -> Single:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=source.height * PATCH, patch_size=PATCH, **_SMALL)
    return _hf(ViTModel(config).embeddings, table, target)


def hf_dinov2_with_registers(table: Single, source: Grid, target: Grid) -> Single:
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    size = source.height * PATCH
    config = Dinov2WithRegistersConfig(image_size=size, patch_size=PATCH, **_SMALL)
    return _hf(Dinov2WithRegistersModel(config).embeddings, table, target)


def hf_siglip2(table: Single, source: Grid, target: Grid) -> Single:
    from transformers import Siglip2VisionConfig
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

    config = Siglip2VisionConfig(num_patches=source.cells, patch_size=PATCH, **_SMALL)
    embeddings = Siglip2VisionEmbeddings(config)
    grid = torch.from_numpy(table).reshape(source.height, source.width, CHANNELS)
    shapes = torch.tensor([[target.height, target.width]])
    return _rows(embeddings.resize_positional_embeddings(grid, shapes, max_length=target.cells))


def open_clip(table: Single, source: Grid, target: Grid) -> Single:
    from open_clip import CLIP
    from open_clip.model import resize_pos_embed

    size = (target.height * PATCH, target.width * PATCH)
    vision = {
        "image_size": size,
        "patch_size": PATCH,
        "width": CHANNELS,
        "head_width": 8,
        "layers": 1,
    }
    text = {"context_length": 7, "vocab_size": 10, "width": CHANNELS, "heads": 2, "layers": 1}
    state = {"visual.positional_embedding": torch.from_numpy(table)}
    resize_pos_embed(state, CLIP(embed_dim=8, vision_cfg=vision, text_cfg=text))
    return _rows(state["visual.positional_embedding"])


def torchvision(table: Single, source: Grid, target: Grid) -> Single:
    from torchvision.models.vision_transformer import interpolate_embeddings

    state = OrderedDict({"encoder.pos_embedding": torch.from_numpy(table)[None]})
    resized = interpolate_embeddings(target.height * PATCH, PATCH, state)
    return _rows(resized["encoder.pos_embedding"])


def jax_zoom(table: Single, source: Grid, target: Grid) -> Single:
    from scipy.ndimage import zoom

    grid = table[1:].reshape(source.height, source.width, CHANNELS)
    factors = (target.height / source.height, target.width / source.width, 1)
    resized: Single = zoom(grid, factors, order=1)
    assert resized.shape == (target.height, target.width, CHANNELS)
    return np.concatenate([table[:1], resized.reshape(-1, CHANNELS)])


def dinov2(table: Single, source: Grid, target: Grid) -> Single:
    # dinov2/models/vision_transformer.py, interpolate_pos_encoding with interpolate_offset = 0.1
    side = source.height
    scale = (float(target.height + 0.1) / side, float(target.width + 0.1) / side)
    return _torch(table, source, scale_factor=scale)


def dpt(table: Single, source: Grid, target: Grid) -> Single:
    # transformers models/dpt/modeling_dpt.py, _resize_pos_embed
    return _torch(table, source, size=(target.height, target.width), mode="bilinear")


def timesformer(table: Single, source: Grid, target: Grid) -> Single:
    # timesformer/models/vit.py, forward_features
    return _torch(table, source, size=(target.height, target.width), mode="nearest")


def deit(table: Single, source: Grid, target: Grid) -> Single:
    # deit/main.py, --finetune
    return _torch(table, source, size=(target.height, target.width), align_corners=False)


_SMALL = {
    "hidden_size": CHANNELS,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


def _hf(embeddings: torch.nn.Module, table: Single, target: Grid) -> Single:
    embeddings.position_embeddings.data = torch.from_numpy(table)[None]
    tokens = torch.zeros(1, 1 + target.cells, CHANNELS)
    size = (target.height * PATCH, target.width * PATCH)
    return _rows(embeddings.interpolate_pos_encoding(tokens, *size))  # type: ignore[operator]


def _torch(table: Single, source: Grid, mode: str = "bicubic", **arguments: object) -> Single:
    grid = torch.from_numpy(table[1:]).reshape(1, source.height, source.width, CHANNELS)
    resized = F.interpolate(grid.permute(0, 3, 1, 2), mode=mode, **arguments)  # type: ignore[arg-type]
    cells = resized.permute(0, 2, 3, 1).flatten(1, 2)[0].numpy()
    return np.concatenate([table[:1], cells])


def _rows(tensor: torch.Tensor) -> Single:
    return tensor.detach().reshape(-1, CHANNELS).numpy()


ANY = ["5x9 8x6", "9x5 4x13", "2x8 4x4", "16x64 12x48", "14x14 24x16"]
SQUARE_SOURCE = ["7x7 5x12", "6x6 4x9", "14x14 24x16", "12x12 3x7", "8x8 8x11"]
SQUARE = ["7x7 12x12", "14x14 24x24", "12x12 5x5"]  # torchvision knows no others

ORACLES: list[tuple[str, Library, list[str], int]] = [  # convention, library, grids, prefix
    ("timm", timm, ANY, 1),
    ("hf", hf_vit, SQUARE_SOURCE, 1),
    ("dinov2", dinov2, SQUARE_SOURCE, 1),
    ("dinov2-reg", hf_dinov2_with_registers, SQUARE_SOURCE, 1),
    ("open_clip", open_clip, [pair for pair in SQUARE_SOURCE if pair != "6x6 4x9"], 1),
    ("torchvision", torchvision, SQUARE, 1),
    ("jax", jax_zoom, ANY, 1),
    ("deit", deit, ANY, 1),
    ("dpt", dpt, ANY, 1),
    ("timesformer", timesformer, ANY, 1),
    ("siglip2", hf_siglip2, SQUARE_SOURCE, 0),
]


def test_every_convention_has_an_oracle() -> None:
    assert [name for name, *_ in ORACLES] == list(CONVENTIONS)


@pytest.mark.parametrize(
    ("name", "library", "pair", "prefix"),
    [(name, library, pair, p) for name, library, pairs, p in ORACLES for pair in pairs],
)
def test_a_convention_is_what_its_library_does(
    name: str, library: Library, pair: str, prefix: int
) -> None:
    source, target = (Grid.parse(word) for word in pair.split())
    drawn = np.random.default_rng(source.cells).normal(size=(prefix + source.cells, CHANNELS))
    table = drawn.astype(np.float32)
    layout = Layout.parse("(p h w s) d")
    ours = resize_absolute(table, layout, prefix, source, 0, target, CONVENTIONS[name].resampling)
    theirs = library(table, source, target)
    assert ours.shape == theirs.shape
    assert ours[:prefix].tobytes() == theirs[:prefix].tobytes()
    # Of the table's range: their float32 coordinates alone cost 1e-5 on 64 columns of white noise.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(table).max())


def test_open_clip_mistakes_equal_counts_for_equal_grids() -> None:
    table = np.random.default_rng(0).normal(size=(37, CHANNELS)).astype(np.float32)
    source, target = Grid(6, 6), Grid(4, 9)
    assert np.array_equal(open_clip(table, source, target), table)  # left alone by them …
    resampling = CONVENTIONS["open_clip"].resampling
    ours = resize_absolute(table, Layout.parse("(p h w) d"), 1, source, 0, target, resampling)
    np.testing.assert_allclose(ours, timm(table, source, target), rtol=0, atol=1e-5)
