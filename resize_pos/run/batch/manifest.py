"""`--manifest jobs.toml|jobs.csv|jobs.jsonl`: a size and options for each source."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse
from resize_pos.core.options import Kind, Option, request_options
from resize_pos.core.printable import quoted
from resize_pos.core.request import Request

_PLACES = ("source", "output")

# If a job states one of these, it does not inherit the others from the command line.
_EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    ("to", "to_grid"),
    ("from_", "from_grid"),
    ("family", "pattern"),
    ("family", "axes"),
    ("like", "method"),
    ("like", "antialias"),
)


@dataclass(frozen=True, slots=True)
class ManifestJob:
    """One job of a manifest."""

    where: str  # for messages
    source: str  # a file, a folder or a glob; relative to the manifest
    output: str | None  # relative to the output folder
    options: Mapping[str, Any]  # arguments of `Request.make`


def read_manifest(path: Path) -> tuple[ManifestJob, ...]:
    """Read a manifest; refuse an unknown key or a malformed value, and say where it is."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(
            f"--manifest {path}: a manifest is one of {', '.join(_READERS)}.",
            hint=f"name it {path.stem or 'jobs'}.toml",
        )
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"--manifest {path}: is not a regular file.")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"--manifest {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--manifest {path}: is not UTF-8 at byte {error.start}.") from error
    try:
        entries = tuple(_entry(where, row) for where, row in reader(text))
    except ResizePosError as error:
        raise UsageError(f"--manifest {path}: {error.message}", error.hint) from error
    except RecursionError:
        raise UsageError(f"--manifest {path}: values are nested too deeply.") from None
    if not entries:
        raise UsageError(f"--manifest {path}: holds no job.")
    return entries


def merged(options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Combine options; those of the job replace those of the command line."""
    replaced = {name for group in _EXCLUSIVE if own.keys() & set(group) for name in group}
    kept = {name: value for name, value in options.items() if name not in replaced}
    return {**kept, **own}


def _entry(where: str, row: Mapping[str, Any]) -> ManifestJob:
    options: dict[str, Any] = {}
    places: dict[str, str | None] = dict.fromkeys(_PLACES)
    for key, value in row.items():
        name = key.replace("-", "_")
        if name in _PLACES:
            if not isinstance(value, str) or not value or "\0" in value:
                raise UsageError(f"{where}: {key} is {quoted(value)}; expected a path.")
            places[name] = value
        elif name in _options():
            known = _options()[name]
            options[known.name] = _value(known, value, f"{where}: {key}")
        else:
            raise UsageError(
                f"{where}: {quoted(key)} is not known.",
                hint=f"the known keys are {', '.join([*_PLACES, *_options()])}.",
            )
    if places["source"] is None:
        raise UsageError(f"{where}: has no source.")
    try:
        Request.make(**options)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from None
    return ManifestJob(where, places["source"], places["output"], options)


def _value(option: Option, value: object, where: str) -> object:
    """Accept a typed value, or text from a CSV cell."""
    kinds = _TYPES[option.kind]
    if isinstance(value, str):
        if bool in kinds and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if option.kind is Kind.COUNT and value.isascii() and value.isdigit():
            value = int(value) if len(value) < _MOST_DIGITS else value
    is_pair = isinstance(value, list) and [type(part) for part in value] == [int, int]
    if option.kind is Kind.TEXTS and isinstance(value, list) and _are_texts(value):
        return tuple(value)
    if type(value) in kinds or (is_pair and option.kind in (Kind.SIZE, Kind.GRID)):
        return value
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise UsageError(f"{where} is {quoted(value)}; expected {expected}.")


def _are_texts(values: Sequence[object]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


_MOST_DIGITS = 20
_TYPES: Mapping[Kind, tuple[type, ...]] = {
    Kind.SIZE: (int, str),
    Kind.GRID: (int, str),
    Kind.COUNT: (int,),
    Kind.TEXT: (str,),
    Kind.TEXTS: (str,),
    Kind.CHOICE: (str,),
    Kind.SWITCH: (bool,),
    Kind.FLAG: (bool,),
}


@cache
def _options() -> Mapping[str, Option]:
    return {option.key: option for option in request_options()}


_Rows = Iterator[tuple[str, Mapping[str, Any]]]


def _read_toml(text: str) -> _Rows:
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer with too many digits
        raise UsageError(f"{error}.") from None
    except RecursionError:
        raise UsageError("it is nested too deeply.") from None
    for key in document:
        if key != "job":
            raise UsageError(f"{quoted(key)} is not known.", hint="write [[job]] for each job.")
    rows = document.get("job", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError("job is not a list of tables.", hint="write [[job]] for each job.")
    for number, row in enumerate(rows, start=1):
        yield f"job {number}", row


def _read_jsonl(text: str) -> _Rows:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse(line)
        except ValueError as error:
            raise UsageError(f"line {number}: {error}.") from None
        if not isinstance(row, dict):
            raise UsageError(f"line {number}: is not an object.")
        yield f"line {number}", {key: value for key, value in row.items() if value is not None}


def _read_csv(text: str) -> _Rows:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            where = f"line {reader.line_num}"
            if None in row:
                raise UsageError(f"{where}: has more cells than the header.")
            yield where, {key: cell for key, cell in row.items() if cell not in ("", None)}
    except csv.Error as error:
        raise UsageError(f"line {reader.line_num}: {error}.") from None


_READERS: Mapping[str, Callable[[str], _Rows]] = {
    ".toml": _read_toml,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
}
