"""Golden plans: a header and a request in, a plan or an error text out. A case is a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from resize_pos.core.errors import ResizePosError
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.planning.locate import locate_tables
from resize_pos.planning.output_name import default_output
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules.base import Surroundings

CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.toml"))


def read_case(path: Path) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    tensors = {}
    for name, words in case["tensors"].items():
        dtype, *shape = words.split()
        tensors[name] = TensorInfo(name, tuple(map(int, shape)), dtype)
    return case, tensors


def plan_for(tensors: dict[str, TensorInfo], **options: Any) -> Plan:
    request = Request.make(**options)
    return make_plan(locate_tables(Surroundings(tensors, request)), request)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_golden_plan(path: Path) -> None:
    case, tensors = read_case(path)
    assert set(case) <= {"about", "tensors", "request", "plan", "error"}
    assert ("plan" in case) != ("error" in case)
    if "error" in case:
        with pytest.raises(ResizePosError) as caught:
            plan_for(tensors, **case["request"])
        assert caught.value.message == case["error"]["message"]
        assert caught.value.hint == case["error"]["hint"]
        return
    steps = {step.table.name: step for step in plan_for(tensors, **case["request"]).steps}
    assert list(steps) == [expected["name"] for expected in case["plan"]]
    for expected in case["plan"]:
        step = steps[expected["name"]]
        assert f"{step.action} {step.table.grid} → {step.target}" == expected["step"]
        assert [step.table.prefix, step.table.suffix] == expected["rows"]
        assert list(step.target_shape) == expected["shape"]
        assert expected.get("family") in (None, step.table.family.name)
        assert expected.get("method") in (None, str(step.operation))


VIT = {
    "cls_token": TensorInfo("cls_token", (1, 1, 8), "F32"),
    "pos_embed": TensorInfo("pos_embed", (1, 197, 8), "F32"),
    "patch_embed.proj.weight": TensorInfo("patch_embed.proj.weight", (8, 3, 16, 16), "F32"),
}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"to": 384}, "ckpt-384.safetensors"),
        ({"to": "384x512"}, "ckpt-384x512.safetensors"),
        ({"to_grid": "24x32"}, "ckpt-384x512.safetensors"),
    ],
)
def test_the_output_is_named_after_the_target(options: dict[str, Any], name: str) -> None:
    plan = plan_for(VIT, **options)
    assert default_output(Path("zoo/ckpt.safetensors"), plan) == Path("zoo") / name


def test_without_a_patch_size_the_output_is_named_after_the_grid() -> None:
    tensors = {name: info for name, info in VIT.items() if "patch" not in name}
    plan = plan_for(tensors, to_grid="24x32")
    assert default_output(Path("ckpt.v2.safetensors"), plan).name == "ckpt.v2-grid24x32.safetensors"


def test_a_plan_is_the_same_value_every_time() -> None:
    assert plan_for(VIT, to=384) == plan_for(VIT, to=384)


def test_one_size_for_two_towers_that_see_other_images_is_refused() -> None:
    other = {
        "b.cls_token": (1, 1, 8),
        "b.pos_embed": (1, 257, 8),
        "b.patch_embed.proj.weight": (8, 3, 14, 14),
    }
    towers = {f"a.{name}": TensorInfo(f"a.{name}", i.shape, i.dtype) for name, i in VIT.items()}
    towers |= {name: TensorInfo(name, shape, "F32") for name, shape in other.items()}
    same = plan_for(towers, to="448x336")  # both see 224 px now
    assert [str(step.target) for step in same.steps] == ["28×21", "32×24"]
    towers["b.pos_embed"] = TensorInfo("b.pos_embed", (1, 577, 8), "F32")  # 336 px
    with pytest.raises(ResizePosError, match="see images of different sizes") as caught:
        plan_for(towers, to="448x336")
    assert "--tower" in str(caught.value.hint)


def test_a_patch_size_is_not_changed_under_tables_that_follow_the_image() -> None:
    tensors = read_case(CASES[0].with_name("sam.toml"))[1]
    with pytest.raises(ResizePosError, match="is a relative table that follows the image"):
        plan_for(tensors, to_patch=8)


def test_rows_of_several_frames_are_not_taken_for_other_rows() -> None:
    """73 rows are three frames of the stated 4×6 cells and a class row."""
    tensors = VIT | {"pos_embed": TensorInfo("pos_embed", (1, 73, 8), "F32")}
    with pytest.raises(ResizePosError, match=r"73 = 1 \+ 3 × 4×6") as caught:
        plan_for(tensors, from_grid="4x6", to_grid="8x5")
    assert "--axes" in str(caught.value.hint)


def test_patches_of_one_pixel_are_square_patches() -> None:
    tensors = {"pos_embed": TensorInfo("pos_embed", (1, 60, 8), "F32")}
    (step,) = plan_for(tensors, from_="6x10", to="12x15").steps
    assert (str(step.table.grid), str(step.target)) == ("6×10", "12×15")
