"""RF-DETR in transformers: a detector whose DINOv2 cuts the image into windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resize_pos.api import resize_checkpoint
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Size
from resize_pos.verify.folder import check_folder
from tests.vlm.apart import save_rf_detr

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rf") / "old"
    save_rf_detr(folder)
    return folder


@pytest.mark.parametrize("size", [48, 40])
def test_it_runs_at_the_new_size(size: int, source: Path, tmp_path: Path) -> None:
    import torch
    import transformers as t

    output = tmp_path / "new"
    resize_checkpoint(source, to=size, output=output)
    model: Any
    model, found = t.RfDetrForObjectDetection.from_pretrained(output, output_loading_info=True)
    assert not any(found.values())
    assert model.eval()(torch.zeros(1, 3, size, size)).logits.shape == (1, 5, 3)
    processor = json.loads((output / "preprocessor_config.json").read_text())
    assert processor["size"] == {"height": size, "width": size}
    assert check_folder(output).agrees


def test_a_grid_that_it_cannot_run_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match="multiple of 2") as refusal:
        resize_checkpoint(source, to=36, output=tmp_path / "new")
    assert "32 px and 40 px" in str(refusal.value.hint)
    with pytest.raises(GeometryError, match="square images only"):
        resize_checkpoint(source, to=Size(40, 56), output=tmp_path / "new")
    assert not (tmp_path / "new").exists()
