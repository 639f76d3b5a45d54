"""The record of the conversion that is stored in a converted file: write it, and read it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from resize_pos._version import __version__
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.json_edit import parse
from resize_pos.core.request import Request
from resize_pos.planning.geometry.grid_solver import Geometry

if TYPE_CHECKING:
    from resize_pos.core.tensors import TensorInfo
    from resize_pos.families.tables import Step
    from resize_pos.planning.plan import Plan

KEY = "resize_pos"
_LARGEST = 2**31


def record(
    plan: Plan, tensors: Mapping[str, TensorInfo], data: Mapping[str, bytes]
) -> Mapping[str, str]:
    """Return the metadata entry for a plan; `data` are the bytes of the tensors that change."""
    steps = plan.changes
    document = {
        "version": __version__,
        "from": str(plan.from_size) if plan.from_size else None,
        "to": str(plan.to_size) if plan.to_size else None,
        "method": sorted({str(step.operation) for step in steps}),
        "tables": {
            step.name: {
                "from": [step.table.grid.height, step.table.grid.width],
                "to": [step.target.height, step.target.width],
                "prefix": step.table.prefix,
                "suffix": step.table.suffix,
                **(_frames(step) if step.table.layout.has_time else {}),
            }
            for step in steps
        },
        "source": digest(tensors, data),
        "request": request_record(plan.request),
    }
    return {KEY: json.dumps(document, separators=(",", ":"))}


def request_record(request: Request) -> Mapping[str, Any]:
    """Return a request as plain data. Two results are equal if and only if the requests are."""
    return as_plain(request)  # type: ignore[no-any-return]


def recorded_request(metadata: Mapping[str, str]) -> tuple[str, Mapping[str, Any]] | None:
    """Read back version and request. Return None for old records, which hold no request."""
    try:
        document = parse(metadata.get(KEY, "{}"))
        version, request = document["version"], document["request"]
    except (ValueError, TypeError, KeyError):
        return None
    return (version, request) if isinstance(version, str) and isinstance(request, dict) else None


def _frames(step: Step) -> dict[str, int]:
    """State the frames of a table; those of the source, too, if they change."""
    before, after = step.table.frames, step.frames
    return {"frames": after} if before == after else {"frames": after, "from_frames": before}


def restored_request(stated: Request, metadata: Mapping[str, str]) -> Request:
    """Add to a request what the record of a conversion says and the request leaves open.

    What a user states takes precedence, also over the other way to state the same (`--to` and
    `--to-grid`). How tables were resampled is not restored: `verify` finds that out.
    """
    recorded = recorded_request(metadata)
    if recorded is None:
        return stated
    default = Request()
    open_fields = [
        part.name
        for part in fields(stated)
        if getattr(stated, part.name) == getattr(default, part.name)
    ]
    blocked = {
        name
        for group in _SAME_QUESTION
        if any(name not in open_fields for name in group)
        for name in group
    }
    found: dict[str, Any] = {}
    for part in fields(stated):
        value = recorded[1].get(part.name)
        kind = str(part.type).removesuffix(" | None")
        skipped = part.name not in open_fields or part.name in blocked or part.name in _OF_METHOD
        if skipped or value is None:
            continue
        if kind in _SIDES:
            sides = _sides(value, _SIDES[kind])
            if sides is not None:
                found[part.name] = sides
        elif type(value).__name__ == kind and kind in _PLAIN:
            found[part.name] = value
    return replace(stated, **found)


_SAME_QUESTION = (
    ("to_size", "to_grid", "to_length", "to_window"),
    ("from_size", "from_grid", "from_length", "from_window"),
    ("family", "pattern", "axes"),
)
_SIDES: Mapping[str, type[Size] | type[Grid]] = {"Size": Size, "Grid": Grid}
_PLAIN = ("str", "int", "bool")
_OF_METHOD = frozenset({"like", "restore_norms", "attention_scale"})


def _sides(value: object, kind: type[Size] | type[Grid]) -> Size | Grid | None:
    if not isinstance(value, dict):
        return None
    try:
        depth = _count(value.get("depth", 0), 0)
        return kind(_count(value["height"]), _count(value["width"]), depth)
    except (KeyError, ValueError):
        return None


def as_plain(value: Any) -> Any:
    """Return a value as JSON data. Fields of a dataclass that have their default are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [(part, getattr(value, part.name)) for part in fields(value)]
        return {part.name: as_plain(v) for part, v in parts if v != part.default}
    if isinstance(value, Mapping):
        return {str(key): as_plain(v) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def digest(tensors: Mapping[str, TensorInfo], data: Mapping[str, bytes]) -> str:
    """Hash the names, dtypes, shapes and bytes of tensors, independent of their order."""
    import hashlib

    total = hashlib.sha256()
    for name in sorted(data):
        info = tensors[name]
        total.update(f"{name}\0{info.dtype}\0{info.shape}\0".encode())
        total.update(data[name])
    return f"sha256:{total.hexdigest()}"


def planned_geometry(plan: Plan) -> Mapping[str, Geometry]:
    """Return the planned geometry of the tables, for a container that cannot store a record."""
    return {
        step.name: Geometry(
            step.table.prefix, step.target, step.table.suffix, ("as it was planned",), step.frames
        )
        for step in plan.steps
    }


def recorded_geometry(metadata: Mapping[str, str]) -> Mapping[str, Geometry]:
    """Read back the grids that an earlier conversion recorded; malformed records are ignored."""
    return _geometry(metadata, "to", "recorded in the file by an earlier conversion")


def recorded_source_geometry(metadata: Mapping[str, str]) -> Mapping[str, Geometry]:
    """Read back the grids that the tables had before the conversion."""
    return _geometry(metadata, "from", "recorded in the output that was made from it")


def recorded_digest(metadata: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Read back the digest of the source's tables, and the names of these tables."""
    try:
        document = parse(metadata.get(KEY, "{}"))
        return str(document["source"]), tuple(map(str, document["tables"]))
    except (ValueError, TypeError, KeyError):
        return None


def _geometry(metadata: Mapping[str, str], side: str, evidence: str) -> Mapping[str, Geometry]:
    try:
        document = parse(metadata.get(KEY, "{}"))
        tables = document["tables"].items()
        return {
            str(name): Geometry(
                _count(entry["prefix"], 0),
                Grid(_count(entry[side][0]), _count(entry[side][1])),
                _count(entry["suffix"], 0),
                (evidence,),
                _count(_recorded_frames(entry, side)),
            )
            for name, entry in tables
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return {}


def _recorded_frames(entry: Mapping[str, object], side: str) -> object:
    after = entry.get("frames", 1)
    return entry.get("from_frames", after) if side == "from" else after


def _count(value: object, least: int = 1) -> int:
    if type(value) is not int or not least <= value < _LARGEST:
        raise ValueError(f"{value!r} is not a number of rows")
    return value
