"""Families whose code transformers does not have: their config keys recorded, their towers real.

`tests/vlm/apart.py` says where the keys were read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from resize_pos.api import resize_checkpoint
from resize_pos.core.errors import GeometryError
from resize_pos.verify.folder import check_folder
from tests.vlm.apart import save_molmo, save_openvla, towers


@pytest.mark.parametrize("model_type", ["openvla", "prismatic"])
@pytest.mark.parametrize("to", [56, 42])
def test_openvla(model_type: str, to: int, tmp_path: Path) -> None:
    source, output = tmp_path / "old", tmp_path / "new"
    save_openvla(source, model_type)
    resize_checkpoint(source, to=to, output=output)
    tensors = load_file(output / "model.safetensors")
    for name, tower in towers(to).items():
        own = {
            k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")
        }
        tower.load_state_dict(own)
    config = json.loads((output / "config.json").read_text())
    processor = json.loads((output / "preprocessor_config.json").read_text())
    assert config["image_sizes"] == [to, to]
    assert config["text_config"] == {"model_type": "llama", "max_position_embeddings": 64}
    assert processor["input_sizes"] == [[3, to, to], [3, to, to]]
    assert [each["size"] for each in processor["tvf_resize_params"]] == [[to, to]] * 2
    assert [each["output_size"] for each in processor["tvf_crop_params"]] == [[to, to]] * 2
    for folder in (source, output):
        answer = check_folder(folder)
        assert answer.agrees, answer.disagreements
    (output / "preprocessor_config.json").write_bytes(
        (source / "preprocessor_config.json").read_bytes()
    )
    assert not check_folder(output).agrees


def test_the_released_molmo_stays_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "molmo"
    save_molmo(source)
    report = resize_checkpoint(source, to=448)
    assert report.output is None and not report.plan.config_edits
    with pytest.raises(GeometryError, match="the code of molmo states the number of positions"):
        resize_checkpoint(source, to=448, reference_grids="resize")
    assert [each.name for each in tmp_path.iterdir()] == ["molmo"]
