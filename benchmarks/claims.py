"""The lines of the README's table, from what was measured; each is the worst of all runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


def claims(document: Mapping[str, Any]) -> Iterator[str]:
    """Write one line for each thing that the README says."""
    runs = [_medians(run["commands"]) for run in document["runs"]]
    for what, file in (
        ("ViT-B, 346 MB, `.safetensors`", "vit_b.safetensors"),
        ("ViT-L, 1.2 GB, `.safetensors`", "vit_l.safetensors"),
        ("ViT-L, 1.2 GB, `.pth`", "vit_l.pth"),
        ("5 GB, `.safetensors`", "vit_5gb.safetensors"),
    ):
        rows = [run[file] for run in runs]
        seconds = max(row["resize-pos"] for row in rows)
        ratio = max(row["resize-pos"] / row["cp"] for row in rows)
        yield f"| {what} | {seconds:.1f} s | {ratio:.1f} × |"
    for what, file, peer in (
        ("`load_file`, `F.interpolate`, `save_file`", "vit_b.safetensors", "script"),
        ("`torch.load`, `F.interpolate`, `torch.save`", "vit_b.pth", "script"),
        ("timm: `create_model`, load, save", "vit_b.safetensors", "timm"),
        ("transformers: load, resize, `save_pretrained`", "vit_b_hf", "transformers"),
    ):
        rows = [run[file] for run in runs]
        seconds = min(row[peer] for row in rows)
        ratio = min(row[peer] / row["resize-pos"] for row in rows)
        yield f"| {what} | {seconds:.1f} s | {int(ratio)} × slower |"


def _medians(commands: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        file: {tool: statistics.median(c["seconds"] for c in costs) for tool, costs in row.items()}
        for file, row in commands.items()
    }


if __name__ == "__main__":
    print("\n".join(claims(json.loads(RESULTS.read_text(encoding="utf-8")))))
