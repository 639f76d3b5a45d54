"""`--manifest jobs.toml|jobs.csv|jobs.jsonl`: sources with sizes and options of their own."""

from __future__ import annotations

import csv
import inspect
import io
import json
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.request import Request

_PLACES = ("source", "output")

# A job that states one of these does not inherit the others from the command line.
_RIVALS: tuple[tuple[str, ...], ...] = (
    ("to", "to_grid"),
    ("from_", "from_grid"),
    ("family", "pattern"),
    ("family", "axes"),
    ("like", "method"),
    ("like", "antialias"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a manifest."""

    where: str  # for messages
    source: str  # a file, a folder or a glob; relative to the manifest
    output: str | None  # relative to the output folder
    options: Mapping[str, Any]  # of `Request.make`


def read_manifest(path: Path) -> tuple[Entry, ...]:
    """Read a manifest; an unknown key or a malformed value is refused with its place."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(
            f"--manifest {path}: a manifest is one of {', '.join(_READERS)}.",
            hint=f"name it {path.stem or 'jobs'}.toml",
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"--manifest {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--manifest {path}: is not UTF-8 at byte {error.start}.") from error
    try:
        entries = tuple(_entry(where, row) for where, row in reader(text))
    except ResizePosError as error:
        raise UsageError(f"--manifest {path}: {error.message}", error.hint) from error
    if not entries:
        raise UsageError(f"--manifest {path}: holds no job.")
    return entries


def merged(options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Let a job's own options take the place of the command line's."""
    replaced = {name for rivals in _RIVALS if own.keys() & set(rivals) for name in rivals}
    kept = {name: value for name, value in options.items() if name not in replaced}
    return {**kept, **own}


def _entry(where: str, row: Mapping[str, Any]) -> Entry:
    options: dict[str, Any] = {}
    places: dict[str, str | None] = dict.fromkeys(_PLACES)
    for key, value in row.items():
        name = key.replace("-", "_")
        if name in _PLACES:
            if not isinstance(value, str) or not value:
                raise UsageError(f"{where}: {key} must be a path.")
            places[name] = value
        elif name in _options():
            known = _options()[name]
            options[known.name] = known.read(value, f"{where}: {key}")
        else:
            raise UsageError(
                f"{where}: {key!r} is not known.",
                hint=f"known are {', '.join([*_PLACES, *_options()])}.",
            )
    if places["source"] is None:
        raise UsageError(f"{where}: has no source.")
    try:
        Request.make(**options)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from None
    return Entry(where, places["source"], places["output"], options)


@dataclass(frozen=True, slots=True)
class _Option:
    name: str  # as `Request.make` calls it
    kinds: frozenset[type]

    def read(self, value: object, where: str) -> object:
        """Take a typed value, or the text of a spreadsheet's cell."""
        if (
            isinstance(value, list)
            and tuple in self.kinds
            and [type(v) for v in value] == [int] * 2
        ):
            return tuple(value)
        if type(value) in self.kinds:
            return value
        if isinstance(value, str):
            if bool in self.kinds and value.lower() in ("true", "false"):
                return value.lower() == "true"
            if int in self.kinds and value.isascii() and value.isdigit():
                return int(value)
        expected = sorted(kind.__name__ for kind in self.kinds if kind is not tuple)
        raise UsageError(f"{where} is {value!r}; expected {' or '.join(expected)}.")


@cache
def _options() -> Mapping[str, _Option]:
    """Read off `Request.make` what a job may state, so that a new option needs no word here."""
    hints = typing.get_type_hints(Request.make)
    found = {}
    for name in inspect.signature(Request.make).parameters:
        parts = typing.get_args(hints[name]) or (hints[name],)
        kinds = frozenset(typing.get_origin(part) or part for part in parts)
        found[name.rstrip("_")] = _Option(name, kinds & {int, str, bool, tuple})
    return found


_Rows = Iterator[tuple[str, Mapping[str, Any]]]


def _read_toml(text: str) -> _Rows:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{error}.") from None
    for key in document.keys() - {"job"}:
        raise UsageError(f"{key!r} is not known.", hint="write [[job]] for each job.")
    rows = document.get("job", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError("job is not a list of tables.", hint="write [[job]] for each job.")
    for number, row in enumerate(rows, start=1):
        yield f"job {number}", row


def _read_jsonl(text: str) -> _Rows:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
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
