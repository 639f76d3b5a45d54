"""Manifests: three formats, one meaning; strict about keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resize_pos.core.errors import UsageError
from resize_pos.core.request import Request
from resize_pos.run.batch.manifest import merged, read_manifest

# file name → content; all three say the same
SAME = {
    "jobs.toml": (
        '[[job]]\nsource = "a.pt"\nto = 384\nantialias = false\n'
        '[[job]]\nsource = "b/*.pt"\noutput = "c"\nto-grid = "8x4"\nprefix = 1\n'
    ),
    "jobs.jsonl": (
        '{"source": "a.pt", "to": 384, "antialias": false}\n\n'
        '{"source": "b/*.pt", "output": "c", "to_grid": "8x4", "prefix": 1, "like": null}\n'
    ),
    "jobs.csv": (
        "source,output,to,to_grid,prefix,antialias\r\na.pt,,384,,,false\r\nb/*.pt,c,,8x4,1,\r\n"
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_three_formats_have_one_meaning(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SAME[name], encoding="utf-8", newline="")
    first, second = read_manifest(path)
    assert (first.source, first.output) == ("a.pt", None)
    assert Request.make(**first.options) == Request.make(to=384, antialias=False)
    assert (second.source, second.output) == ("b/*.pt", "c")
    assert Request.make(**second.options) == Request.make(to_grid="8x4", prefix=1)


# file name, content, what the refusal must say
REFUSED: dict[str, tuple[str, str, str]] = {
    "unknown key": ("j.toml", '[[job]]\nsource = "a"\nsize = 3\n', "job 1: 'size' is not known"),
    "unknown table": ("j.toml", '[jobs]\nsource = "a"\n', "'jobs' is not known"),
    "no list": ("j.toml", '[job]\nsource = "a"\n', "not a list"),
    "bad toml": ("j.toml", "[[job]\n", "line 1"),
    "no source": ("j.toml", "[[job]]\nto = 3\n", "job 1: has no source"),
    "source is a number": ("j.toml", "[[job]]\nsource = 3\n", "source is 3; expected a path"),
    "size is a float": ("j.toml", '[[job]]\nsource = "a"\nto = 3.5\n', "to is 3.5; expected"),
    "flag as a number": ("j.toml", '[[job]]\nsource = "a"\nantialias = 1\n', "expected bool"),
    "number as a flag": ("j.toml", '[[job]]\nsource = "a"\nprefix = true\n', "expected int"),
    "malformed size": ("j.toml", '[[job]]\nsource = "a"\nto = "big"\n', "job 1: .*'big'"),
    "contradiction": ("j.toml", '[[job]]\nsource = "a"\nto = 3\nto_grid = 3\n', "exclude"),
    "empty": ("j.toml", "", "holds no job"),
    "bad json": ("j.jsonl", '{"source": "a"}\n{"source"}\n', "line 2"),
    "no object": ("j.jsonl", "[]\n", "line 1: is not an object"),
    "too many cells": ("j.csv", "source,to\na,3,4\n", "line 2: has more cells"),
    "word for a number": ("j.csv", "source,prefix\na,one\n", "line 2: prefix is 'one'"),
    "unknown column": ("j.csv", "source,size\na,3\n", "'size' is not known"),
    "unknown format": ("j.yaml", "", ".toml, .csv, .jsonl"),
    "a name with a zero byte": ("j.toml", '[[job]]\nsource = "a\\u0000"\n', "expected a path"),
    "5,000 digits in TOML": ("j.toml", f'[[job]]\nsource = "a"\nto = {"9" * 5000}\n', "digits"),
    "as many in hexadecimal": (
        "j.toml",
        f'[[job]]\nsource = "a"\nto = 0x{"f" * 5000}\n',
        "must be between",
    ),
    "5,000 digits in JSON": ("j.jsonl", f'{{"source": "a", "to": {"9" * 5000}}}\n', "digits"),
    "5,000 digits in a cell": ("j.csv", f"source,prefix\na,{'9' * 5000}\n", "prefix is '9+…"),
    "nested TOML": ("j.toml", f"[[job]]\nto = {'[' * 5000}{']' * 5000}\n", "nested too deeply"),
    "nested JSON": ("j.jsonl", "[" * 100_000 + "\n", "nested too deeply"),
    "a list for text": ("j.toml", '[[job]]\nsource = "a"\nfamily = ["b"]\n', "expected str"),
    "a date": ("j.toml", '[[job]]\nsource = "a"\nto = 2026-01-01\n', "expected int or str"),
    "infinity": ("j.jsonl", '{"source": "a", "prefix": Infinity}\n', "prefix is inf"),
    "a zero byte in a table": ("j.csv", "source\na\0b\n", "line 2"),
    "a header alone": ("j.csv", "source,to\n", "holds no job"),
    "a hostile key": ("j.jsonl", '{"\\u001b[31m": 1}\n', r"'\\x1b\[31m' is not known"),
    "not UTF-8": ("j.csv", "source\n\udcff\n", "not UTF-8 at byte 7"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    name, content, message = REFUSED[case]
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=message):
        read_manifest(path)


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs\.toml: No such file"):
        read_manifest(tmp_path / "jobs.toml")


# the command line's, the job's, together
MERGED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"to": 384}, {}, {"to": 384}),
    ({"to": 384, "prefix": 1}, {"to": 512}, {"to": 512, "prefix": 1}),
    ({"to": 384}, {"to_grid": "8x4"}, {"to_grid": "8x4"}),
    ({"to": 384, "like": "hf"}, {"method": "nearest"}, {"to": 384, "method": "nearest"}),
    ({"from_": 224}, {"from_grid": "8x4"}, {"from_grid": "8x4"}),
    ({"family": "vit"}, {"pattern": "p", "axes": "h w d"}, {"pattern": "p", "axes": "h w d"}),
]


@pytest.mark.parametrize(("options", "own", "together"), MERGED)
def test_a_jobs_own_word_replaces_the_command_lines(
    options: dict[str, Any], own: dict[str, Any], together: dict[str, Any]
) -> None:
    assert merged(options, own) == together
    Request.make(**together)
