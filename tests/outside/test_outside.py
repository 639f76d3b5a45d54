"""Every recorded model ends as docs/outside.md says, and none ends wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from resize_pos.core.errors import TableError
from resize_pos.run.job import Job, run
from tests.outside.cases import Case, cases, materialise, misplaced, outcome, read, request
from tests.outside.table import PAGE, WHY_REFUSED, row

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
    assert 3 * (right + unchanged) >= 2 * models
    assert "0 wrong" in text


def test_every_refusal_has_its_reason() -> None:
    text = PAGE.read_text(encoding="utf-8")
    refused = [
        case.name
        for case in ALL
        if f"| {case.name.partition(':')[2]} | refused |" in text
        and f"| {case.package} {case.entry['version']} | {case.name.partition(':')[2]} | refused |"
        in text
    ]
    assert sorted(refused) == sorted(WHY_REFUSED)
    for name, why in WHY_REFUSED.items():
        assert f"| {name} | {why}. |" in text


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
def test_a_decoder_s_table_follows_the_encoder_s(name: str, tensor: str, tmp_path: Path) -> None:
    end = outcome(named(name), tmp_path)
    assert end.kind == "right"
    assert end.report is not None
    table = next(step.table for step in end.report.plan.changes if step.name == tensor)
    assert table.family.name == "by-value"


def test_half_a_model_is_refused_and_also_makes_it_whole(tmp_path: Path) -> None:
    """What has the rows of a table and no name of positions is for the user to decide."""
    case = named("transformer-in-transformer:transformer_in_transformer.TNT")
    source = tmp_path / "model.safetensors"
    materialise(case, source)
    flags = [*case.flags, "--from", "224", "--pattern", "^patch_pos_emb$"]
    with pytest.raises(TableError, match="patch_tokens") as caught:
        run(Job(source, request(flags), output=tmp_path / "out.safetensors"))
    assert "--also '^patch_tokens$'" in (caught.value.hint or "")
    assert outcome(case, tmp_path).kind == "hint"


def test_a_transposed_grid_does_not_count_as_right(tmp_path: Path) -> None:
    case = named("python-doctr:pytorch.VisionTransformer")
    end = outcome(case, tmp_path)
    assert end.kind == "right"
    assert end.report is not None
    output, name = tmp_path / "out.safetensors", "0.positions"
    data = read(output)[name][1]
    table = np.frombuffer(data, "<f4").reshape(1, 385, 192)
    grid = table[:, 1:].reshape(12, 32, 192).transpose(1, 0, 2).reshape(1, -1, 192)
    turned = np.concatenate([table[:, :1], grid], axis=1).tobytes()
    output.write_bytes(output.read_bytes().replace(data, turned))
    assert "resembles the true field only" in misplaced(case, output, end.report)


@pytest.mark.parametrize(
    "name",
    [
        "torchgeo:croma.CROMA",
        "vit-pytorch:levit.LeViT",
        "lambda-networks:lambda_networks.LambdaLayer",
        "bottleneck-transformer-pytorch:bottleneck_transformer_pytorch.BottleStack#1",
    ],
)
def test_nothing_to_do_is_not_said_of_an_unknown_table(name: str, tmp_path: Path) -> None:
    case, source = named(name), tmp_path / "model.safetensors"
    materialise(case, source)
    with pytest.raises(TableError):
        run(Job(source, request(case.flags), output=tmp_path / "out.safetensors"))
    assert not (tmp_path / "out.safetensors").exists()


# The printed pattern is right for these. Then something else is asked for: the depth of a volume,
# or what becomes of a causal mask.
REFUSED_LATER = ("| primus.Primus#1 |", "| module.CausalPredictor |")


def test_no_printed_pattern_leads_nowhere() -> None:
    """A refusal that cannot be answered with --pattern does not print one."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| refused |" in line]
    named = [row for row in rows if "--pattern" in row]
    assert [row for row in named if not any(model in row for model in REFUSED_LATER)] == []


def test_a_volume_is_not_read_as_a_plane(tmp_path: Path) -> None:
    assert "is a volume" in outcome(named("monai:unetr.UNETR#1"), tmp_path).words
