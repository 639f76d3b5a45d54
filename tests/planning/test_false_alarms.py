"""Tensors that look as if they followed the image: known designs end unchanged, others are asked.

And the opposite: a table of offsets that is called a bias is no bias of a layer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from resize_pos.core.errors import GeometryError, TableError
from resize_pos.run.job import Job, run
from tests.outside.cases import request
from tests.support.builders import write_safetensors

D = 64
Shapes = dict[str, tuple[int, ...]]

ALEXNET: Shapes = {
    "features.0.weight": (64, 3, 11, 11),
    "features.0.bias": (64,),
    "features.10.weight": (256, 256, 3, 3),
    "features.10.bias": (256,),
    "classifier.1.weight": (4096, 9216),
    "classifier.1.bias": (4096,),
    "classifier.4.weight": (4096, 4096),
    "classifier.4.bias": (4096,),
    "classifier.6.weight": (10, 4096),
    "classifier.6.bias": (10,),
}
VGG: Shapes = {
    "features.0.weight": (64, 3, 3, 3),
    "features.0.bias": (64,),
    "features.18.weight": (512, 512, 3, 3),
    "features.18.bias": (512,),
    "classifier.0.weight": (4096, 25088),
    "classifier.0.bias": (4096,),
    "classifier.3.weight": (4096, 4096),
    "classifier.3.bias": (4096,),
    "classifier.6.weight": (10, 4096),
    "classifier.6.bias": (10,),
}
DETECTOR: Shapes = {
    "backbone.conv1.weight": (64, 3, 7, 7),
    "conv.weight": (2 * D, 512, 1, 1),
    "conv.bias": (2 * D,),
    "transformer.encoder.norm.weight": (2 * D,),
    "query_pos": (100, 2 * D),
    "row_embed": (50, D),
    "col_embed": (50, D),
    "linear_bbox.weight": (4, 2 * D),
    "linear_bbox.bias": (4,),
}
ACTIONS: Shapes = {
    "backbones.0.0.body.conv1.weight": (64, 3, 7, 7),
    "transformer.encoder.norm.weight": (D,),
    "transformer.decoder.norm.weight": (D,),
    "query_embed.weight": (100, D),
    "encoder_action_proj.weight": (D, 14),
    "encoder_action_proj.bias": (D,),
    "latent_out_proj.weight": (D, 32),
    "latent_out_proj.bias": (D,),
    "additional_pos_embed.weight": (2, D),
    "pos_table": (1, 102, D),
}


def write(folder: Path, shapes: Shapes) -> Path:
    random = np.random.default_rng(3)
    path = folder / "model.safetensors"
    tensors = {n: random.standard_normal(s).astype(np.float16) for n, s in shapes.items()}
    if "pos_table" in tensors:
        steps = np.arange(102)[:, None] / 10000 ** (2 * (np.arange(D) // 2) / D)
        table = np.where(np.arange(D) % 2, np.cos(steps), np.sin(steps))
        tensors["pos_table"] = table[None].astype(np.float16)
    write_safetensors(path, tensors)
    return path


@pytest.mark.parametrize("shapes", [ALEXNET, VGG, DETECTOR, ACTIONS])
@pytest.mark.parametrize("size", ["384", "320x480"])
def test_known_designs_stay_as_they_are(shapes: Shapes, size: str, tmp_path: Path) -> None:
    source, output = write(tmp_path, shapes), tmp_path / "out.safetensors"
    report = run(Job(source, request(["--to", size]), output=output, dry_run=True))
    assert not report.plan.changes


def test_other_heads_over_cells_are_asked_about(tmp_path: Path) -> None:
    """Without the names of a known design, nothing shows that the features are pooled."""
    own = {name.replace("features", "body"): shape for name, shape in VGG.items()}
    with pytest.raises(TableError, match="reads 49 cells"):
        run(Job(write(tmp_path, own), request(["--to", "384"]), dry_run=True))


@pytest.mark.parametrize("rows", [49, 20])
def test_rows_and_columns_of_one_size_are_asked_about(rows: int, tmp_path: Path) -> None:
    small = {**DETECTOR, "row_embed": (rows, D), "col_embed": (rows, D)}
    with pytest.raises(GeometryError, match="per row and per column"):
        run(Job(write(tmp_path, small), request(["--to", "384"]), dry_run=True))


@pytest.mark.parametrize("name", ["bias_tab", "bias_table", "bias", "attn_bias", "foo"])
@pytest.mark.parametrize("offsets", [11 * 19, 13 * 13])
def test_a_table_that_is_called_a_bias_forbids_nothing_to_do(
    name: str, offsets: int, tmp_path: Path
) -> None:
    shapes: Shapes = {
        "stem.weight": (D, 3, 16, 16),
        "stem.bias": (D,),
        **{f"blocks.{block}.attn.{name}": (offsets, 4) for block in range(2)},
        **{f"blocks.{block}.norm.weight": (D,) for block in range(2)},
        **{f"blocks.{block}.mlp.weight": (4 * D, D) for block in range(2)},
        **{f"blocks.{block}.mlp.bias": (4 * D,) for block in range(2)},
    }
    with pytest.raises(TableError, match="offsets"):
        run(Job(write(tmp_path, shapes), request(["--to", "192x320"]), dry_run=True))
