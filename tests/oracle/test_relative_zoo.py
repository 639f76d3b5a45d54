"""Every timm model with relative tables: the plan predicts all shapes at other image sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from resize_pos.errors import ResizePosError
from resize_pos.locate import locate_tables
from resize_pos.plan import make_plan
from resize_pos.request import Request
from resize_pos.rules.base import Surroundings
from resize_pos.tensors import TensorInfo

TABLES = re.compile(
    r"relative_position_bias_table$|rel_pos_[hw]$|_rel$|attention_biases$|\.pos_emb$"
)
LINEAGES = re.compile(
    r"beit|swin_(?!v2|cr)|maxvit|maxxvit|coatn|gcvit|levit|efficientformer|efficientvit_m|mvitv2|"
    r"samvit|botnet|halo|lambda|lamhalo"
)


def infos(name: str, **options: Any) -> dict[str, TensorInfo]:
    import timm

    with torch.device("meta"):
        model = timm.create_model(name, **options)
    return {key: TensorInfo(key, tuple(t.shape), "F32") for key, t in model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_plan_predicts_every_shape(capsys: pytest.CaptureFixture[str]) -> None:
    import timm

    right, refused, wrong = 0, [], []
    for name in timm.list_models():
        if not LINEAGES.search(name):
            continue
        source = infos(name)
        if not any(TABLES.search(key) for key in source):
            continue
        side = timm.get_pretrained_cfg(name).input_size[-1]
        for size in ((side * 2, side * 2), (side, side * 2), (side // 2, side // 2), (256, 320)):
            one = size[0] if name.startswith("efficientvit_m") and size[0] == size[1] else size
            try:
                expected = infos(name, img_size=one)
            except Exception:
                continue  # the library itself does not build it
            try:
                request = Request.make(to=size)
                plan = make_plan(locate_tables(Surroundings(source, request)), request)
            except ResizePosError as error:
                refused.append(f"{name} {size}: {error.message}")
                continue
            shapes = {key: info.shape for key, info in source.items()}
            shapes |= {step.table.name: step.target_shape for step in plan.steps}
            bad = [key for key, info in expected.items() if shapes[key] != info.shape]
            wrong += [f"{name} {size}: {bad[0]}"] if bad else []
            right += not bad
    with capsys.disabled():
        print(f"\n{right} right, {len(refused)} refused, {len(wrong)} wrong")  # noqa: T201
    assert not wrong
    assert right > 10 * len(refused)
    words = ("multiple of 32", "cannot be told from global ones")
    assert all(any(word in line for word in words) for line in refused), refused
