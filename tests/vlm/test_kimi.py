"""Kimi K2.5 in transformers: its tower interpolates in a grid whose sides the config states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resize_pos.api import resize_checkpoint
from tests.vlm.seen import keys, run
from tests.vlm.zoo import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")


def test_only_the_sides_of_the_grid_change(tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.name == "kimi_k25")
    source, output = family.save(tmp_path / "old"), tmp_path / "new"
    kept = resize_checkpoint(source, to=64, output=tmp_path / "kept", dry_run=True)
    assert not kept.plan.changes and not kept.plan.config_edits
    resize_checkpoint(source, to_grid="8x12", reference_grids="resize", output=output)
    assert run(family, output) == run(family, source) == (5 * 7, (10 * 14, 3, 4, 4))
    before, after = (json.loads((each / "config.json").read_text()) for each in (source, output))
    assert list(keys(before)) == list(keys(after))
    assert after["vision_config"] == before["vision_config"] | {
        "pos_emb_height": 8,
        "pos_emb_width": 12,
    }
