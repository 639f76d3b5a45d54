"""Every transformers model whose config states a text length: shapes at one length predict another.

The plan is made from names, shapes and the config, as for a file; no weight is ever allocated.
"""

from __future__ import annotations

from typing import Any

import pytest
import transformers as hf

from resize_pos.errors import ResizePosError
from resize_pos.locate import locate_tables
from resize_pos.plan import make_plan
from resize_pos.request import Request
from resize_pos.rules.base import Surroundings
from resize_pos.tables import Action
from resize_pos.tensors import TensorInfo
from resize_pos.text_configs import texts_of
from tests.oracle.sweeps import Shapes, shapes_of

SHORT, LONG = 514, 1026
KEYS = ("max_position_embeddings", "n_positions")
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer")

# What is left alone, and why; everything else must be predicted.
EXCUSED = {
    "bros": "position_ids is a companion, not a table",
    "clap": "position_ids and token_type_ids are companions, not tables",
    "mra": "position_ids is a companion, not a table",
    "videoprism": "position_ids is a companion, not a table",
    "ibert": "a second, quantised copy of the table: not recognised, so refused",
    "granite_speech5_encoder": "relative distances of one attention window",
    "sam3_lite_text": "the library interpolates at run time",
    "sam3_lite_text_text_model": "the library interpolates at run time",
}


def config_of(cls: Any, length: int) -> Any:
    config = cls()
    for part in (config, getattr(config, "text_config", None)):
        if part is None:
            continue
        for key in KEYS:
            if hasattr(part, key):
                setattr(part, key, length)
        for key in LAYERS:
            if isinstance(getattr(part, key, None), int):
                setattr(part, key, 1)
    return config


def shapes(cls: Any, config: Any) -> Shapes:
    found = hf.MODEL_MAPPING[cls]
    model = found[0] if isinstance(found, tuple) else found
    return shapes_of(lambda: model(config))


def unpredicted(config: Any, before: Shapes, after: Shapes) -> list[str]:
    """Name the tensors whose shape at the longer length the plan does not give."""
    infos = {name: TensorInfo(name, shape, "F32") for name, shape in before.items()}
    texts = texts_of(config.to_dict())
    located = locate_tables(Surroundings(infos, Request.make(), texts=texts))
    wrong = {name for name in before if before[name] != after[name]}
    lengths = {table.length for table in located.tables if table.name in wrong}
    if len(lengths) != 1:
        return sorted(wrong)
    (length,) = lengths
    request = Request.make(
        from_length=length, to_length=length + LONG - SHORT, length_method="tile"
    )
    try:
        plan = make_plan(located, request)
    except ResizePosError:  # a reason is given, and EXCUSED has to know the model
        return sorted(wrong)
    planned = {s.table.name: s.target_shape for s in plan.steps if s.action is not Action.KEEP}
    return [name for name in before if planned.get(name, before[name]) != after[name]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a hundred models' own code
def test_every_text_model_s_shapes_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    predicted, missed = [], {}
    for name in hf.CONFIG_MAPPING:
        cls = hf.CONFIG_MAPPING[name]
        if cls not in hf.MODEL_MAPPING:
            continue
        try:
            config = config_of(cls, SHORT)
            before, after = shapes(cls, config), shapes(cls, config_of(cls, LONG))
        except Exception:  # a config that needs more than its defaults, or a missing library
            continue
        if before == after:
            continue
        wrong = unpredicted(config, before, after)
        if wrong:
            missed[name] = wrong
        else:
            predicted.append(name)
    with capsys.disabled():
        total = len(predicted) + len(missed)
        print(f"\n{len(predicted)} of {total} text models predicted; left alone: {sorted(missed)}")  # noqa: T201
    assert len(predicted) >= 80
    assert set(missed) <= set(EXCUSED), {name: missed[name] for name in set(missed) - set(EXCUSED)}
