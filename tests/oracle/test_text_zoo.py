"""Every transformers model whose config states a text length: shapes at one length predict another.

The plan is made from names, shapes and the config, as for a file; no weight is ever allocated.
"""

from __future__ import annotations

from typing import Any

import pytest
import transformers as hf

from resize_pos.configs.model_types import config_models
from resize_pos.core.errors import ResizePosError
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Action
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.plan import make_plan
from resize_pos.planning.rules.base import Surroundings
from tests.oracle.sweeps import Shapes, shapes_of

SHORT, LONG = 514, 1026
KEYS = ("max_position_embeddings", "n_positions")
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer")

# What is refused or left alone, and why the plan says so; everything else must be predicted.
EXCUSED = {
    "ibert": "no position table was found",  # it has a second, quantised copy of the table
    "granite_speech5_encoder": "distances inside one attention window",
    "sam3_lite_text": "the model resamples this table for every text",
    "sam3_lite_text_text_model": "the model resamples this table for every text",
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


def missed(config: Any, before: Shapes, after: Shapes) -> str | None:
    """Say why the plan does not give the shapes at the longer length; None where it does."""
    infos = {name: TensorInfo(name, shape, "F32") for name, shape in before.items()}
    models = config_models({"config.json": config.to_dict()})
    located = locate_tables(Surroundings(infos, Request.make(), models=models))
    changed = {name for name in before if before[name] != after[name]}
    lengths = {table.length for table in located.tables if table.name in changed}
    length = min(lengths, default=SHORT)
    request = Request.make(
        from_length=length if lengths else None,
        to_length=length + LONG - SHORT,
        length_method="tile",
    )
    try:
        plan = make_plan(located, request)
    except ResizePosError as error:
        return error.message
    planned = {s.table.name: s.target_shape for s in plan.steps if s.action is not Action.KEEP}
    wrong = [name for name in before if planned.get(name, before[name]) != after[name]]
    reasons = {step.table.name: step.reason for step in plan.steps}
    return "; ".join(f"{name}: {reasons.get(name, 'not found')}" for name in wrong) or None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a hundred models' own code
def test_every_text_model_s_shapes_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    predicted, reasons = [], {}
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
        reason = missed(config, before, after)
        if reason:
            reasons[name] = reason
        else:
            predicted.append(name)
    with capsys.disabled():
        total = len(predicted) + len(reasons)
        share = len(predicted) / total
        print(f"\n{len(predicted)} of {total} text models predicted ({share:.1%})")  # noqa: T201
        print(*(f"  {name}: {why}" for name, why in reasons.items()), sep="\n")  # noqa: T201
    assert len(predicted) >= 80
    assert reasons.keys() == EXCUSED.keys()
    assert all(EXCUSED[name] in why for name, why in reasons.items())
