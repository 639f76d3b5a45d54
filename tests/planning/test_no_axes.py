"""A single number under the name of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import resize_pos
from resize_pos.core.errors import TableError
from tests.support.builders import vit, write_safetensors


@pytest.mark.parametrize("name", ["pos_embed", "relative_position_bias_table", "rel_pos_h"])
def test_a_number_is_no_table(name: str, tmp_path: Path) -> None:
    file = write_safetensors(tmp_path / "odd.safetensors", {name: np.array(3, np.float32)})
    with pytest.raises(TableError, match="no position table was found"):
        resize_pos.resize_checkpoint(file, to=(160, 224), dry_run=True)


def test_a_number_beside_a_table_is_copied(tmp_path: Path) -> None:
    tensors = {"scale.pos_embed": np.array(3, np.float32), **vit(5, 7)}
    file = write_safetensors(tmp_path / "odd.safetensors", tensors)
    report = resize_pos.resize_checkpoint(
        file, from_grid="5x7", to_grid="6x9", output=tmp_path / "out.safetensors"
    )
    assert [step.name for step in report.plan.changes] == ["pos_embed"]
