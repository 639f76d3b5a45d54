"""What people do today, as scripts: run as `python -m benchmarks.peers KIND SOURCE TARGET`."""

from __future__ import annotations

import sys
from typing import Any


def declare_torchvision_operators() -> None:
    """Let timm import beside a CPU build of torch (see the tests' conftest)."""
    import torch

    for name in ("nms", "qnms"):
        try:
            torch.library.define(
                f"torchvision::{name}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
        except RuntimeError:
            return


def resized(table: Any) -> Any:
    """The fifteen-line snippet: one key, one prefix token, a square grid."""
    import torch
    from torch.nn import functional

    cls, grid = table[:, :1], table[:, 1:]
    side = int(grid.shape[1] ** 0.5)
    grid = grid.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = functional.interpolate(grid, size=(24, 24), mode="bicubic", antialias=True)
    return torch.cat([cls, grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def safetensors_script(source: str, target: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    tensors["pos_embed"] = resized(tensors["pos_embed"]).contiguous()
    save_file(tensors, target, metadata={"format": "pt"})


def torch_script(source: str, target: str) -> None:
    import torch

    checkpoint = torch.load(source, map_location="cpu", weights_only=True)
    tensors = checkpoint.get("model", checkpoint)
    tensors["pos_embed"] = resized(tensors["pos_embed"]).contiguous()
    torch.save(checkpoint, target)


def timm_way(source: str, target: str) -> None:
    declare_torchvision_operators()
    import timm
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    width = tensors["pos_embed"].shape[-1]
    depth = sum(name.endswith("attn.qkv.weight") for name in tensors)
    model = timm.create_model(
        "vit_base_patch16_224", img_size=384, embed_dim=width, depth=depth, num_heads=width // 64
    )
    from timm.models.vision_transformer import checkpoint_filter_fn

    model.load_state_dict(checkpoint_filter_fn(tensors, model))
    save_file(model.state_dict(), target, metadata={"format": "pt"})


def transformers_way(source: str, target: str) -> None:
    """A transformers folder: load at the old size, resize, save the model."""
    declare_torchvision_operators()
    import torch
    from transformers import ViTModel

    model = ViTModel.from_pretrained(source)
    embeddings = model.embeddings
    embeddings.position_embeddings = torch.nn.Parameter(resized(embeddings.position_embeddings))
    model.config.image_size = 384
    model.save_pretrained(target)


KINDS = {
    "safetensors": safetensors_script,
    "torch": torch_script,
    "timm": timm_way,
    "transformers": transformers_way,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](*sys.argv[2:])
