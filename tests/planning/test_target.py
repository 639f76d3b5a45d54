"""Targets of single tables: patch sizes, windows that repeat, scaled branches, steps."""

from __future__ import annotations

import pytest

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Size, Tiling
from resize_pos.core.operations import Resample, ResampleTiled
from resize_pos.core.tensors import TensorInfo
from resize_pos.planning.rules.target import _require_a_row_each
from tests.planning.test_plan import VIT, plan_for

WIDE = VIT | {"pos_embed": TensorInfo("pos_embed", (1, 217, 8), "F32")}  # 12×18 and a class row


def shaped(**shapes: tuple[int, ...]) -> dict[str, TensorInfo]:
    names = {name.replace("__", "."): shape for name, shape in shapes.items()}
    return {name: TensorInfo(name, shape, "F32") for name, shape in names.items()}


def test_a_new_patch_size_alone_gives_a_new_grid() -> None:
    steps = plan_for(WIDE, from_grid="12x18", to_patch=8).steps
    assert [str(s.target) for s in steps if s.name == "pos_embed"] == ["24×36"]


def test_a_target_without_whole_windows_names_the_nearest_with_them() -> None:
    with pytest.raises(GeometryError, match="does not hold whole windows") as caught:
        plan_for(WIDE, from_grid="12x18", tile_window="4x6", to_grid="9x14")
    assert caught.value.hint == "the nearest sizes that do are 128x192 px and 192x288 px."
    bare = {name: info for name, info in WIDE.items() if "patch" not in name}
    with pytest.raises(GeometryError) as caught:
        plan_for(bare, from_grid="12x18", tile_window="4x6", to_grid="9x14")
    assert caught.value.hint == "the nearest grids that do are 8×12 and 12×18."


def test_a_table_of_windows_is_tiled_unless_a_library_is_named() -> None:
    hiera = shaped(
        pos_embed=(1, 8 * 16, 8),
        patch_embed__proj__weight=(8, 3, 7, 7),
        blocks__0__norm1__weight=(8,),
        blocks__1__proj__weight=(16, 8),
    )
    options = {"family": "hiera", "from_grid": "8x16", "to_grid": "16x24"}
    (step,) = plan_for(hiera, **options).steps
    assert isinstance(step.operation, ResampleTiled)
    (step,) = plan_for(hiera, **options, like="timm").steps
    assert isinstance(step.operation, Resample)


def test_the_second_branch_of_a_crossvit_sees_a_scaled_image() -> None:
    """240 px in patches of 12, and the same image as 224 px in patches of 16."""
    tensors = shaped(
        cls_token_0=(1, 1, 8),
        cls_token_1=(1, 1, 16),
        pos_embed_0=(1, 401, 8),
        pos_embed_1=(1, 197, 16),
        patch_embed__0__proj__weight=(8, 3, 12, 12),
        patch_embed__1__proj__weight=(16, 3, 16, 16),
    )
    steps = {step.name: str(step.target) for step in plan_for(tensors, to="480x360").steps}
    assert steps == {"pos_embed_0": "40×30", "pos_embed_1": "28×21"}


def test_a_size_with_fewer_patches_than_rows_is_refused() -> None:
    """Windows of 16 in steps of 10: at 100 there are 9, and the library makes 10 rows."""
    table = plan_for(VIT, to=384).steps[0].table
    tiling = Tiling(Size(10, 10), Size(16, 16))
    with pytest.raises(GeometryError, match="makes 9 patches, and a table of 10 rows") as caught:
        _require_a_row_each(table, tiling, Size(100, 99))
    assert caught.value.hint == "the nearest that fit are 99 and 106."
    _require_a_row_each(table, tiling, Size(99, 106))
