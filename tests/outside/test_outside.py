"""Every recorded model ends as docs/outside.md says, and none ends wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resize_pos.core.errors import TableError
from resize_pos.run.job import Job, run
from tests.outside.cases import Case, cases, materialise, outcome, request
from tests.outside.table import PAGE, row

ALL = list(cases())


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_page_says_how_it_ends(case: Case, tmp_path: Path) -> None:
    end = outcome(case, tmp_path)
    assert end.kind != "wrong", end.words
    assert row(case, end) in PAGE.read_text(encoding="utf-8"), f"{end.kind}: {end.words}"


def test_the_page_holds_the_bars() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(
        r"(\d+) models of (\d+) packages: (\d+) right, (\d+) unchanged, (\d+) hint", text
    )
    assert found is not None
    models, packages, right, unchanged, hint = map(int, found.groups())
    assert models == len(ALL)
    assert packages >= 30
    assert right + unchanged + hint >= 120


def named(name: str) -> Case:
    return next(case for case in ALL if case.name == name)


def test_windows_of_a_pyramid_are_not_taken_for_the_image(tmp_path: Path) -> None:
    """MONAI's SwinUNETR names its tables like BEiT; its 7×7 windows do not follow the image."""
    case = named("monai:swin_unetr.SwinUNETR")
    end = outcome(case, tmp_path)
    assert end.kind == "unchanged"
    assert end.report is not None
    reasons = {step.reason for step in end.report.plan.steps if "bias_table" in step.name}
    assert reasons == {"nothing shows that its window is the whole image, so it stays as a window"}


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("vit-pytorch:mae.MAE", "decoder_pos_emb.weight"),
        ("monai:masked_autoencoder_vit.MaskedAutoEncoderViT", "decoder_pos_embedding"),
    ],
)
def test_half_a_model_is_refused_and_also_makes_it_whole(
    name: str, tensor: str, tmp_path: Path
) -> None:
    case, source = named(name), tmp_path / "model.safetensors"
    materialise(case, source)
    with pytest.raises(TableError, match=re.escape(tensor)) as caught:
        run(Job(source, request(case.flags), output=tmp_path / "out.safetensors"))
    assert f"--also '^{re.escape(tensor)}$'" in (caught.value.hint or "")
    assert outcome(case, tmp_path).kind == "hint"


@pytest.mark.parametrize(
    "name",
    [
        "torchgeo:croma.CROMA",
        "kornia:vit.VisionTransformer",
        "python-doctr:pytorch.vit_s",
    ],
)
def test_nothing_to_do_is_not_said_of_an_unknown_table(name: str, tmp_path: Path) -> None:
    case, source = named(name), tmp_path / "model.safetensors"
    materialise(case, source)
    with pytest.raises(TableError):
        run(Job(source, request(case.flags), output=tmp_path / "out.safetensors"))
    assert not (tmp_path / "out.safetensors").exists()


def test_a_volume_is_not_read_as_a_plane(tmp_path: Path) -> None:
    assert "is a volume" in outcome(named("monai:unetr.UNETR#1"), tmp_path).words
