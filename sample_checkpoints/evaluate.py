"""Score a checkpoint of the digits model on the held-out digits, at its own resolution.

    python sample_checkpoints/evaluate.py CHECKPOINT [--size HxW] [--limit N] [--json]

The size is read off the file: rows of the position table less one prefix row, times the patch
kernel. A table whose grid is not square needs `--size`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from digits import count_correct, load_split, model_from_state
from safetensors.torch import load_file
from torch import Tensor

PREFIX = 1


def parse_size(text: str) -> tuple[int, int]:
    """Read `384` or `256x192` (height × width)."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 384 or 256x192")
    return int(parts[0]), int(parts[-1])


def read_state(path: Path) -> dict[str, Tensor]:
    """Load a safetensors file, or a state dict saved by torch."""
    if path.suffix == ".safetensors":
        tensors: dict[str, Tensor] = load_file(path)
        return tensors
    loaded: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded


def own_size(state: Mapping[str, Tensor], size: tuple[int, int] | None) -> tuple[int, int]:
    """Return height and width in pixels that the tables of `state` were made for."""
    for name in ("pos_embed", "patch_embed.proj.weight"):
        if name not in state:
            raise ValueError(f"no tensor {name}; is this the digits model?")
    cells = state["pos_embed"].shape[1] - PREFIX
    patch_height, patch_width = state["patch_embed.proj.weight"].shape[-2:]
    if size is None:
        side = math.isqrt(cells)
        if side * side != cells:
            raise ValueError(f"pos_embed has {cells} cells, not a square grid; pass --size HxW")
        return side * patch_height, side * patch_width
    height, width = size
    if (height // patch_height) * (width // patch_width) != cells:
        raise ValueError(
            f"{height}×{width} px at patch {patch_height} is a grid of "
            f"{height // patch_height}×{width // patch_width}; pos_embed has {cells} cells"
        )
    return height, width


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Score a digits checkpoint at its own resolution.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--size", type=parse_size, metavar="HxW", help="for non-square tables")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N test digits")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads for torch")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)

    try:
        state = read_state(options.checkpoint)
        height, width = own_size(state, options.size)
        model = model_from_state(state, height, width)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {options.checkpoint.name}: {error}", file=sys.stderr)
        return 1
    _, _, images, labels = load_split()
    images, labels = images[: options.limit], labels[: options.limit]
    correct, total = count_correct(model, images, labels, height, width), len(labels)

    patch_height, patch_width = state["patch_embed.proj.weight"].shape[-2:]
    grid = (height // patch_height, width // patch_width)
    if options.json:
        result = {
            "checkpoint": options.checkpoint.name,
            "size": [height, width],
            "grid": list(grid),
            "correct": correct,
            "total": total,
            "accuracy": correct / total,
        }
        print(json.dumps(result))
    else:
        pixels = f"{height}" if height == width else f"{height}×{width}"
        print(
            f"{options.checkpoint.name}: {pixels} px, {grid[0]}×{grid[1]} patches: "
            f"accuracy {100 * correct / total:.1f} % ({correct} of {total} test digits)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
