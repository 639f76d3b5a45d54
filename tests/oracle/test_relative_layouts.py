"""Relative tables of real models: converted, loaded strictly, and held against the library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from resize_pos.api import resize_state_dict
from tests.oracle.relative_models import LAYOUTS, Layout, Tensors
from tests.oracle.relative_more import MORE_LAYOUTS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

ALL = (*LAYOUTS, *MORE_LAYOUTS)
CASES = [(layout, *target) for layout in ALL for target in layout.targets]
IDS = [f"{layout.name} {dict(asked)}" for layout, asked, _ in CASES]


def randomised(model: torch.nn.Module, table: str) -> Tensors:
    """Give the state dict with random values in the tables: many are initialised to zero."""
    generator = torch.Generator().manual_seed(7)
    state: Tensors = dict(model.state_dict())
    parameters = dict(model.named_parameters())
    for name, tensor in state.items():
        if re.search(table, name) and name in parameters:
            state[name] = torch.randn(tensor.shape, generator=generator)
    return state


@pytest.mark.parametrize(("layout", "asked", "built"), CASES, ids=IDS)
def test_the_result_loads_strictly_and_equals_the_library(
    layout: Layout, asked: Mapping[str, Any], built: Mapping[str, Any]
) -> None:
    source = randomised(layout.built(layout.source), layout.table)
    target = layout.built(built)
    fresh = dict(target.state_dict())
    parameters = dict(target.named_parameters())
    result = resize_state_dict(source, **layout.options, **asked)
    target.load_state_dict(result, strict=True)
    tables = [name for name in source if re.search(layout.table, name)]
    assert tables
    for name in source:
        if name not in parameters and re.search(r"ind?e?x|coords|idxs", name):
            assert torch.equal(result[name], fresh[name]), name
        elif source[name].shape == result[name].shape and name not in tables:
            assert torch.equal(result[name], source[name]), name
    if layout.own is None or (layout.square_own and isinstance(asked.get("to"), tuple)):
        return
    for name in tables:
        if source[name].shape != result[name].shape:
            expected = layout.own(name, source[name], target)
            torch.testing.assert_close(result[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ALL, ids=lambda layout: layout.name)
def test_the_same_size_changes_nothing(layout: Layout) -> None:
    source = randomised(layout.built(layout.source), layout.table)
    size = next(
        (v for k, v in layout.source.items() if k in ("img_size", "image_size", "size")), 224
    )
    result = resize_state_dict(source, to=size, **layout.options)
    assert all(result[name] is source[name] for name in source)


def test_indexes_that_transformers_stored_before_version_5_are_computed_anew() -> None:
    """LeViT's, also those of its blocks that halve the image."""
    (levit,) = (layout for layout in ALL if layout.name == "transformers levit")
    ((_, built), *_) = levit.targets
    old, new = levit.built(levit.source), levit.built(built)
    stored = {name: tensor for name, tensor in old.named_buffers() if name.endswith("_idxs")}
    assert stored
    result = resize_state_dict({**old.state_dict(), **stored}, to=built["image_size"])
    buffers = dict(new.named_buffers())
    for name in stored:
        assert torch.equal(result[name], buffers[name]), name
