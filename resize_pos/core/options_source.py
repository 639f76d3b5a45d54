"""Write what is generated from the table of options: `python -m resize_pos.core.options_source`.

- `core/request_fields.py`: a type checker cannot follow classes that are made at run time, so the
  fields and the keyword arguments are generated as source.
- the request in `docs/report.schema.json`.

A test compares both with the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from resize_pos.core.options import JOB_OPTIONS, OPTIONS, Joined, Kind, Option

TARGET = Path(__file__).with_name("request_fields.py")
SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"  # in a checkout

_ARGUMENT = {
    Kind.SIZE: "SizeLike",
    Kind.GRID: "GridLike",
    Kind.COUNT: "int",
    Kind.TEXT: "str",
    Kind.TEXTS: "str | Sequence[str]",
    Kind.CHOICE: "str",
    Kind.SWITCH: "bool",
    Kind.FLAG: "bool",
}
_FIELD = {**_ARGUMENT, Kind.SIZE: "Size", Kind.GRID: "Grid", Kind.TEXTS: "tuple[str, ...]"}

_HEAD = '''\
"""Generated from the table in `core/options.py`. Do not edit.

`python -m resize_pos.core.options_source` writes this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from resize_pos.core.conventions import DEFAULT, RelativeConvention, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Sides, Size
from resize_pos.core.operations import Lengthen, SinCosMode

SizeLike = Sides | Size
GridLike = Sides | Grid


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What is asked for, parsed; None: not given."""

'''
_JOB_HEAD = '''

@dataclass(frozen=True, slots=True, kw_only=True)
class JobFields:
    """How a conversion is run."""
'''


def source(
    table: Iterable[Option | Joined] = OPTIONS, job_options: Iterable[Option] = JOB_OPTIONS
) -> str:
    """Return the module's text."""
    entries, for_job = tuple(table), tuple(job_options)
    arguments = [entry for entry in entries if isinstance(entry, Option)]
    lines = [*_fields(entries), _JOB_HEAD, *_fields(for_job)]
    lines += _typed_dict(
        "Options",
        "Keyword arguments that the API and the command line share; None: not given.",
        [option for option in arguments if option.name != "to"],
    )
    lines += _typed_dict(
        "RequestOptions(Options)",
        "All of them, with the target size.",
        [option for option in arguments if option.name == "to"],
    )
    lines += _typed_dict("ResizeOptions(Options)", "Those, and how a conversion is run.", for_job)
    return _HEAD + "\n".join(lines) + "\n"


def _fields(entries: Iterable[Option | Joined]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, Joined):
            yield f"    {entry.field}: {entry.type} = {entry.default}"
        elif entry.field_name is not None:
            yield f"    {entry.field_name}: {_field_type(entry)}"


def _field_type(option: Option) -> str:
    if option.kind is Kind.FLAG:
        return "bool = False"
    if option.on_by_default:
        return "bool = True"
    if option.default is not None:
        return f'str = "{option.default}"'
    return f"{option.type or _FIELD[option.kind]} | None = None"


def _typed_dict(name: str, words: str, options: Iterable[Option]) -> Iterator[str]:
    base = name.replace("(", " ").replace(")", "").split()
    parents = base[1] if len(base) > 1 else "TypedDict"
    yield ""
    yield ""
    yield f"class {base[0]}({parents}, total=False):"
    yield f'    """{words}"""'
    yield ""
    for option in options:
        yield f"    {option.name}: {_ARGUMENT[option.kind]} | None"


def schema(text: str, table: Iterable[Option | Joined] = OPTIONS) -> str:
    """Return the JSON schema with the properties of the request replaced."""
    options = [entry for entry in table if isinstance(entry, Option)]
    lines = (f'        "{option.key}": {json.dumps(_values(option))}' for option in options)
    properties = '"properties": {\n' + ",\n".join(lines) + "\n      }\n"
    return _REQUEST_PROPERTIES.sub(lambda found: found[1] + properties, text, count=1)


_REQUEST_PROPERTIES = re.compile(
    r'(\n    "request": \{\n(?:      .*\n)*?      )"properties": \{\n(?:        .*\n)*      \}\n'
)


def _values(option: Option) -> dict[str, object]:
    if option.kind in (Kind.SIZE, Kind.GRID):
        return {"$ref": "#/$defs/stated"}
    if option.kind is Kind.COUNT:
        return {"type": ["integer", "null"], "minimum": option.least}
    if option.kind is Kind.TEXTS:
        return {"type": ["string", "array", "null"], "items": {"type": "string"}}
    if option.kind is Kind.CHOICE:
        return {"enum": [*option.choices, None]}
    return {
        "type": {Kind.FLAG: "boolean", Kind.SWITCH: ["boolean", "null"]}.get(option.kind, _TEXT)
    }


_TEXT = ["string", "null"]


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
    SCHEMA.write_text(schema(SCHEMA.read_text(encoding="utf-8")), encoding="utf-8")
