"""One table declares the options; what is made from it cannot drift from it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.testing import CliRunner

import resize_pos
from resize_pos.cli.batch import command as batch
from resize_pos.cli.options import flags_of, make_job
from resize_pos.cli.resize import command as resize
from resize_pos.core import options_source, request
from resize_pos.core.errors import UsageError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.option_values import request_values
from resize_pos.core.options import (
    JOB_OPTIONS,
    OPTIONS,
    Joined,
    Kind,
    Option,
    Section,
    request_options,
)
from resize_pos.core.python_words import in_python
from resize_pos.core.request import Request
from resize_pos.core.request_fields import JobFields, RequestOptions, ResizeOptions
from resize_pos.run.batch import manifest
from resize_pos.run.job import Job

ROOT = Path(__file__).parents[2]
NAMES = [option.name for option in request_options()]
NEW = Option("to_depth", Kind.SIZE, Section.TO, "A made-up option.", "SIZE")
EXTENDED: tuple[Option | Joined, ...] = (*OPTIONS, NEW)


def flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}


def test_the_generated_module_is_that_of_the_table() -> None:
    """If this fails: python -m resize_pos.core.options_source."""
    assert options_source.TARGET.read_text(encoding="utf-8") == options_source.source()


def test_batch_takes_every_option_of_resize() -> None:
    # One upload is one model on the hub.
    only_for_one = {"checkpoint", "--output", "-v", "--verbose", "--push", "--push-pr"}
    assert flags(resize) - only_for_one <= flags(batch)
    assert {"--to-patch", "--to-frames", "--to-rows", "--reference-grids"} <= flags(batch)


def test_resize_takes_every_option_of_the_table() -> None:
    known = {param.name for param in resize.params}
    assert {*NAMES, *(option.name for option in JOB_OPTIONS)} <= known


def test_every_option_is_a_keyword_of_the_api_and_documented() -> None:
    assert sorted(get_type_hints(RequestOptions)) == sorted(NAMES)
    assert {option.name for option in JOB_OPTIONS} < set(get_type_hints(ResizeOptions))
    text = str(resize_pos.resize_checkpoint.__doc__)
    for option in (*request_options(), *JOB_OPTIONS):
        words = re.escape(in_python(option.help))
        assert re.search(rf"^ +{option.name}: (False: )?{words}", text, re.M), option.name
        assert all(choice in text for choice in option.choices)


def test_every_option_of_a_job_is_a_field_of_it() -> None:
    assert [field.name for field in dataclasses.fields(JobFields)] == [o.name for o in JOB_OPTIONS]
    assert set(JobFields.__dataclass_fields__) <= set(Job.__dataclass_fields__)


@pytest.mark.parametrize("command", [resize, batch], ids=["resize", "batch"])
def test_without_flags_a_job_is_that_of_the_api_without_keywords(command: click.Command) -> None:
    words = {"resize": ["a.pt"], "batch": ["zoo", "-o", "out"]}[str(command.name)]
    with command.make_context("command", words) as ctx:
        names = {option.name for option in (*request_options(), *JOB_OPTIONS)}
        given = {name: value for name, value in ctx.params.items() if name in names}
    assert given.keys() == names
    assert make_job(Path("a.pt"), given) == Job(Path("a.pt"), Request.make())


JOB_ENTRIES: dict[Kind, tuple[Option, list[str], object]] = {
    option.kind: (option, words, value)
    for option, words, value in (
        (Option("made_up", Kind.FLAG, Section.RUN, "Made up."), ["--made-up"], True),
        (Option("made_up", Kind.SWITCH, Section.RUN, "Made up."), ["--no-made-up"], False),
        (Option("made_up", Kind.COUNT, Section.RUN, "Made up.", "N"), ["--made-up", "3"], 3),
        (Option("made_up", Kind.TEXT, Section.RUN, "Made up.", "X"), ["--made-up", "a"], "a"),
        (Option("made_up", Kind.TEXTS, Section.RUN, "Made up.", "X"), ["--made-up", "a"], ("a",)),
        (
            Option("made_up", Kind.SIZE, Section.RUN, "Made up.", "SIZE"),
            ["--made-up", "96x160"],
            Size(96, 160),
        ),
        (
            Option("made_up", Kind.GRID, Section.RUN, "Made up.", "HxW"),
            ["--made-up", "6x10"],
            Grid(6, 10),
        ),
        (
            Option(
                "made_up",
                Kind.CHOICE,
                Section.RUN,
                "Made up.",
                choices=("one", "two"),
                default="one",
            ),
            ["--made-up", "two"],
            "two",
        ),
    )
}


@pytest.mark.parametrize("kind", Kind)
def test_a_new_entry_of_the_job_appears_everywhere(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fields of a job, the API's keywords and the flags: from one entry, of any kind."""
    new, words, value = JOB_ENTRIES[kind]
    table = (*JOB_OPTIONS, new)
    scope: dict[str, Any] = {"__name__": "resize_pos.core.request_fields"}
    exec(options_source.source(job_options=table), scope)
    assert "made_up" in scope["ResizeOptions"].__annotations__
    monkeypatch.setattr(request, "JOB_OPTION_BY_NAME", {option.name: option for option in table})
    made: list[Any] = []

    @click.command()
    @flags_of(Section.RUN, options=table)
    def command(**options: object) -> None:
        made.append(scope["JobFields"](**request.job_fields(options)))

    for given in ([], words):
        assert CliRunner().invoke(command, given, catch_exceptions=False).exit_code == 0
    without, stated = made
    default = new.default if new.kind is Kind.CHOICE else {Kind.FLAG: False}.get(kind)
    assert (without.made_up, stated.made_up) == (default, value)
    assert dataclasses.replace(stated, made_up=default) == without == scope["JobFields"]()


def test_the_options_of_a_job_are_checked_in_python_too(tmp_path: Path) -> None:
    source = tmp_path / "absent.safetensors"
    wrong: dict[str, tuple[Any, str]] = {
        "force": ("no", "force is 'no'; expected True or False"),
        "select": (3, "select is 3; expected text"),
        "device": ("tpu", "device='tpu' is not a known device"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(UsageError) as caught:
            resize_pos.resize_checkpoint(source, to=96, **{name: value})
        assert message in caught.value.message, caught.value.message


def test_the_schema_describes_exactly_the_options() -> None:
    text = (ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8")
    assert options_source.schema(text) == text
    described = json.loads(text)["$defs"]["request"]["properties"]
    assert sorted(described) == sorted(request_values(Request.make()))
    extended = json.loads(options_source.schema(text, EXTENDED))["$defs"]["request"]["properties"]
    assert extended["to_depth"] == {"$ref": "#/$defs/stated"}


def test_a_new_entry_appears_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The request, the API's keywords, the flags, the manifest, the document: from one entry."""
    scope: dict[str, Any] = {"__name__": "resize_pos.core.request_fields"}
    exec(options_source.source(EXTENDED), scope)
    fields = {field.name: field.default for field in dataclasses.fields(scope["RequestFields"])}
    assert fields["to_depth"] is None
    assert "to_depth" in scope["Options"].__annotations__

    monkeypatch.setattr(request, "OPTION_BY_NAME", {o.name: o for o in request_options(EXTENDED)})
    made: Any = type("Extended", (scope["RequestFields"],), {"make": Request.__dict__["make"]})
    asked = made.make(to_depth="96x160")
    assert asked.to_depth == Size(96, 160)
    assert request_values(asked, EXTENDED)["to_depth"] == [96, 160]

    @click.command()
    @flags_of(Section.TO, options=request_options(EXTENDED))
    def command(**options: object) -> None:
        click.echo(str(options["to_depth"]))

    assert CliRunner().invoke(command, ["--to-depth", "96x160"]).output == "96x160\n"
    assert "A made-up option." in CliRunner().invoke(command, ["--help"]).output

    known = {option.key: option for option in request_options(EXTENDED)}
    monkeypatch.setattr(manifest, "_options", lambda: known)
    path = tmp_path / "jobs.toml"
    path.write_text('[[job]]\nsource = "a.pt"\nto-depth = [96, 160]\n', encoding="utf-8")
    monkeypatch.setattr(manifest, "Request", made)
    (entry,) = manifest.read_manifest(path)
    assert entry.options == {"to_depth": [96, 160]}


def test_an_unknown_keyword_is_a_type_error() -> None:
    misspelt: Any = {"too": 3}
    with pytest.raises(TypeError, match="'too' is not an option"):
        Request.make(**misspelt)


DIGITS = "9" * 5000
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a size with 5,000 digits": ({"to": DIGITS}, "must be between 1 and 1,000,000,000"),
    "a number with 5,000 digits": ({"to": 10**5000}, "must be between 1 and 1,000,000,000"),
    "a count with 5,000 digits": ({"prefix": 10**5000}, "must be between 0 and"),
    "stretch with 5,000 digits": ({"length_method": f"stretch:{DIGITS}"}, "not a number of"),
    "a negative count": ({"prefix": -1}, "--prefix -1 must be between 0 and"),
    "no frames": ({"to_frames": 0}, "--to-frames 0 must be between 1 and"),
    "a truth for a number": ({"suffix": True}, "--suffix is True; expected a whole number"),
    "a truth for a size": ({"to": True}, "--to True is neither a whole number"),
    "four numbers": ({"to": (1, 2, 3, 4)}, "--to .1, 2, 3, 4. is neither a whole number"),
    "a number for text": ({"family": 3}, "--family is 3; expected text"),
    "a text for a truth": ({"antialias": "no"}, "antialias is 'no'; expected True or False"),
    "an unknown choice": ({"sincos": "maybe"}, "--sincos 'maybe' is not known"),
    "an unknown library": ({"relative_like": "x"}, "--relative-like 'x' is not known"),
    "control characters": ({"like": "\x1b[31m"}, r"--like '\\x1b\[31m' is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_value_is_refused_in_words(case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(UsageError, match=message) as caught:
        Request.make(**options)
    assert len(caught.value.message) < 300


def test_sections_are_never_empty() -> None:
    table: Iterable[Option] = (*request_options(), *JOB_OPTIONS)
    assert {option.section for option in table} == set(Section)
