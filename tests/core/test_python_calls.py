"""Arguments that callers of the Python API get wrong: an answer in Python's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resize_pos
from resize_pos.core.errors import UsageError
from tests.support.builders import flat

LINEAR = torch.nn.Linear(2, 2)
TABLE = flat(2, 3, channels=4, prefix=0)
API: Any = resize_pos  # what is called here would not pass a type checker

# The call, and what the answer says.
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "groups of nothing": (
        lambda: API.param_groups(None, None, lr=1.0),
        'report is None; expected a report, or names of tables such as ["pos_embed"].',
    ),
    "groups of a dictionary": (
        lambda: API.param_groups({"weight": 1}, ["weight"], lr=1.0),
        "model is {'weight': 1}; expected a torch module.",
    ),
    "names that are none": (lambda: API.param_groups(LINEAR, [1], lr=1.0), "report is [1]; "),
    "bytes as names": (lambda: API.param_groups(LINEAR, b"weight", lr=1.0), "report is b'weight'"),
    "a rate as text": (
        lambda: API.param_groups(LINEAR, "weight", lr="1e-4"),
        "lr is '1e-4'; expected a number.",
    ),
    "no path": (lambda: API.inspect_checkpoint(None), "path is None; expected a path."),
    "an empty path": (lambda: API.resize_checkpoint("", 96), "path is ''; expected a path."),
    "bytes as a path": (lambda: API.inspect_checkpoint(b"v.pth"), "path is b'v.pth'; expected a"),
    "a module as a path": (
        lambda: API.resize_checkpoint(LINEAR, 96),
        "path is of type Linear; expected a path.",
    ),
    "a list as a path": (lambda: API.compare_checkpoints(["a", "b"]), "paths is ['a', 'b']; exp"),
    "an empty output": (lambda: API.resize_checkpoint("vit.safetensors", 96, output=""), "output"),
    "a number as a report": (
        lambda: API.resize_checkpoint("vit.safetensors", 96, reports=5),
        "reports is 5; expected a path.",
    ),
    "a word as a switch": (
        lambda: API.inspect_checkpoint("vit.safetensors", health="yes"),
        "health is 'yes'; expected True or False.",
    ),
    "a pull request to nowhere": (
        lambda: API.resize_checkpoint("vit.safetensors", 96, push_pr=True),
        "push_pr needs push=ORG/NAME.",
    ),
    "a number as a hub model": (
        lambda: API.resize_checkpoint("vit.safetensors", 96, push=5),
        "push is 5; expected text.",
    ),
    "nothing to verify against": (
        lambda: API.verify_checkpoint("vit.safetensors"),
        "nothing to verify against.",
    ),
    "a module to verify with": (
        lambda: API.verify_checkpoint("vit.safetensors", model=LINEAR),
        "model is of type Linear; expected text.",
    ),
    "arguments that are none": (
        lambda: API.verify_checkpoint("vit.safetensors", model="timm:x", model_args=[5]),
        "model_args is [5]; expected a dictionary, or texts KEY=VALUE.",
    ),
    "a state dict without tensors": (
        lambda: API.resize_state_dict({"epoch": 3}, 96),
        "state_dict holds no tensor",
    ),
    "a state dict of arrays": (
        lambda: API.resize_state_dict({"pos_embed": TABLE}, 96),
        "state_dict['pos_embed'] is of type ndarray; expected a torch tensor.",
    ),
    "names that are numbers": (
        lambda: API.resize_state_dict({1: torch.zeros(2)}, 96),
        "state_dict has the key 1; expected names of tensors.",
    ),
    "a class as the model": (
        lambda: API.fit_checkpoint("vit.safetensors", torch.nn.Linear),
        "the model is the class Linear; expected an instance of it.",
    ),
    "a number as the key": (
        lambda: API.fit_checkpoint("vit.safetensors", LINEAR, key=5),
        "key is 5; expected text.",
    ),
    "a list as a table": (
        lambda: API.resize_table([[1, 2]], 2, 3),
        "array is [[1, 2]]; expected a numpy array or a torch tensor.",
    ),
    "a table with a depth": (
        lambda: API.resize_table(TABLE, "2x3", (3, 3, 3)),
        "to_grid 3×3×3 has three sides",
    ),
    "half a row": (
        lambda: API.resize_table(TABLE, "2x3", 4, prefix=0.5),
        "prefix is 0.5; expected a whole number.",
    ),
    "no device": (lambda: API.resize_table(TABLE, "2x3", 4, device=None), "device is None; exp"),
    "a float as a size": (lambda: API.resize_checkpoint("vit.safetensors", 96.0), "to=96.0 is nei"),
    "a negative size": (lambda: API.resize_checkpoint("vit.safetensors", -96), "to=-96 must be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_in_words(
    case: str, vit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(vit_file.parent)
    call, answer = WRONG[case]
    with pytest.raises(UsageError) as caught:
        call()
    assert answer in caught.value.message
    assert re.search("--[a-z]", f"{caught.value} {caught.value.hint}") is None
    assert [path.name for path in vit_file.parent.iterdir()] == ["vit.safetensors"]


OTHER_WORDS = [
    (lambda: API.resize_checkpoint("v", img_size=96), "'img_size'. Did you mean 'to'?"),
    (lambda: API.resize_checkpoint("v", 96, overwrite=True), "'overwrite'. Did you mean 'force'?"),
    (lambda: API.resize_checkpoint("v", 96, report="r.md"), "'report'. Did you mean 'reports'?"),
    (lambda: API.param_groups(LINEAR, "weight", learning_rate=1), "Did you mean 'lr'?"),
    (lambda: API.verify_checkpoint("v", "w", size=96), "'size'. Did you mean 'to'?"),
]


@pytest.mark.parametrize(("call", "answer"), OTHER_WORDS)
def test_the_words_of_other_tools_are_answered_with_ours(
    call: Callable[[], object], answer: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(answer)):
        call()


SIZES = [
    np.int64(96),
    torch.tensor(96),
    np.array([96, 96]),
    torch.Size([96, 96]),
    {"height": 96, "width": 96},  # as image processors write it
]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_of_other_libraries_are_read(size: Any, vit_file: Path) -> None:
    report = resize_pos.resize_checkpoint(vit_file, size, dry_run=True)
    assert report.plan.steps[0].target_shape == (1, 37, 8)


def test_height_and_width_of_a_dictionary_keep_their_order(vit_file: Path) -> None:
    given: Any = {"width": 160, "height": 96}
    report = resize_pos.resize_checkpoint(vit_file, given, dry_run=True)
    assert str(report.plan.steps[0].target) == "6×10"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_is_resized_as_an_array_is(dtype: torch.dtype) -> None:
    tensor = torch.nn.Parameter(torch.from_numpy(TABLE).to(dtype))
    resized = resize_pos.resize_table(tensor, "2x3", "4x5")
    exact = resize_pos.resize_table(tensor.detach().double().numpy(), "2x3", "4x5")
    assert resized.dtype is dtype and resized.requires_grad
    assert isinstance(exact, np.ndarray)
    expected = torch.from_numpy(exact).to(dtype)
    torch.testing.assert_close(resized.detach(), expected, rtol=1e-6, atol=1e-7)


def test_one_report_needs_no_list_and_a_device_may_be_torch_s_own(vit_file: Path) -> None:
    device: Any = torch.device("cpu")
    page = vit_file.with_name("page.md")
    resize_pos.resize_checkpoint(vit_file, 96, reports=page, device=device)
    assert page.read_text(encoding="utf-8").startswith("#")
