"""Messages for callers of the Python API name keyword arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import resize_pos
from resize_pos.core.options import JOB_OPTIONS, request_options
from resize_pos.core.python_words import in_python

SENTENCES = {
    "Pass --force to replace it, or name another with -o.": (
        "Pass force=True to replace it, or name another with output=PATH."
    ),
    "pass --to SIZE, for example --to 384.": "pass to=SIZE, for example to=384.",
    "drop --from, or correct it.": "drop from_, or correct it.",
    "state the grid with --from-grid HxW or --from SIZE (height × width).": (
        "state the grid with from_grid=HxW or from_=SIZE (height × width)."
    ),
    "--to 384x512 px is not a multiple": 'to="384x512" px is not a multiple',
    "add --like hf to match.": 'add like="hf" to match.',
    "--fill needs --length-method keep.": "fill needs length_method keep.",
    "for example: --pattern 'my_pos$' --axes '1 (p h w s) d'": (
        "for example: pattern='my_pos$' axes='1 (p h w s) d'"
    ),
    "pass --no-config to copy them": "pass edit_configs=False to copy them",
    "--no-antialias and --antialias": "antialias=False and antialias=True",
    "--report r.docx: a report is": "reports r.docx: a report is",
    "`resize-pos inspect -v` lists every tensor": "`inspect_checkpoint` lists every tensor",
    "pass --model timm:NAME and --against SOURCE, too.": (
        "pass model timm:NAME and against=SOURCE, too."
    ),
    "a file named my--to or x-o": "a file named my--to or x-o",
    "for example --tower high_res_model.": 'for example tower="high_res_model".',
    "name it with --pattern and --axes.": "name it with pattern and axes.",
    "--unknown stays": "--unknown stays",
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_flags_become_keyword_arguments(sentence: str) -> None:
    assert in_python(sentence) == SENTENCES[sentence]


def test_every_flag_of_the_table_is_known() -> None:
    for option in (*request_options(), *JOB_OPTIONS):
        assert option.name in in_python(f"pass {option.long_flag} or not")


def test_an_error_of_the_api_names_no_flag(vit_file: Path) -> None:
    resize_pos.resize_checkpoint(vit_file, to=96)
    with pytest.raises(resize_pos.ResizePosError) as caught:
        resize_pos.resize_checkpoint(vit_file, to=96)
    assert caught.value.hint == "Pass force=True to replace it, or name another with output=PATH."
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    for wrong in ({"to": 96, "like": "hf", "method": "nearest"}, {"axes": "h w d"}, {}):
        with pytest.raises(resize_pos.ResizePosError) as caught:
            resize_pos.resize_checkpoint(vit_file, **wrong)
        assert re.search("--[a-z]", f"{caught.value} {caught.value.hint}") is None


def test_an_unknown_keyword_is_named_with_the_nearest(vit_file: Path) -> None:
    with pytest.raises(TypeError, match=r"resize_checkpoint\(\) got .* 'too'. Did you mean 'to'?"):
        resize_pos.resize_checkpoint(vit_file, too=384)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'helth'\. Did you mean 'health'"):
        resize_pos.inspect_checkpoint(vit_file, helth=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [(1, 2, 3, 4), (96.0, 96), [96], "96x", 0])
def test_a_malformed_size_is_shown(wrong: object, vit_file: Path) -> None:
    with pytest.raises(resize_pos.ResizePosError, match=r"^to[ =]"):
        resize_pos.resize_checkpoint(vit_file, to=wrong)  # type: ignore[arg-type]


def test_three_sides_for_an_image_are_refused_in_words(vit_file: Path) -> None:
    with pytest.raises(resize_pos.ResizePosError, match="has a depth, and no table") as caught:
        resize_pos.resize_checkpoint(vit_file, to=(1, 2, 3))
    assert caught.value.hint == "write height × width only."
