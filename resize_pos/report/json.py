"""The report as one JSON document, schema `resize-pos/report/1`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from resize_pos._version import __version__
from resize_pos.containers.reformat import Conversion
from resize_pos.containers.sources import source_name
from resize_pos.core.conventions import (
    CONVENTIONS,
    RELATIVE_CONVENTIONS,
    Convention,
    RelativeConvention,
)
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Operation, Resample
from resize_pos.core.option_values import request_values
from resize_pos.core.printable import finite, safe_json
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import LeftAlone, PositionTable, Step
from resize_pos.quality.checks import LABEL, Check
from resize_pos.quality.measures.catalogue import Peer
from resize_pos.quality.table_health import Health
from resize_pos.report.report import HubUpload, Report, TableReport

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic

SCHEMA = "resize-pos/report/1"


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as plain data; the order of the keys is fixed."""
    fine_tune = report.fine_tune
    return {
        "schema": SCHEMA,
        "version": __version__,
        "source": source_name(report.source),
        "output": None if report.output is None else str(report.output),
        "output_bytes": report.output_bytes,
        "needs_force": report.needs_force,
        "status": report.status.value,
        "request": request_document(report.plan.request),
        "tables": [
            *(_table_report(table) for table in report.tables),
            *(left_alone_document(entry) for entry in report.plan.left_alone),
        ],
        "copied": {
            "tensors": report.copied.tensors,
            "bytes": report.copied.bytes,
            "files": report.copied.files,
            "linked": report.copied.linked,
        },
        "left_out": [{"name": entry.name, "reason": entry.reason} for entry in report.left_out],
        "conversion": _conversion(report.conversion),
        "notes": [{"text": note.text, "warning": note.warning} for note in report.notes],
        "traffic": traffic_document(report.traffic),
        "upload": _upload(report.upload),
        "config_edits": [
            {"file": edit.file, "key": edit.key, "from": edit.before, "to": edit.after}
            for edit in report.config_edits
        ],
        "config_advice": [
            {
                "library": advice.library,
                "file": advice.file,
                "key": advice.key,
                "from": advice.before,
                "to": advice.after,
                "reason": advice.reason,
            }
            for advice in report.config_advice
        ],
        "checks": checks_document(report.checks),
        "verdict": report.verdict.value,
        "judged_by": LABEL,
        "fine_tune": {
            "parameters": list(fine_tune.parameters),
            "suggestion": fine_tune.suggestion,
            "references": list(fine_tune.references),
        },
        "sha256": report.sha256,
        "seconds": round(report.seconds, 4),
    }


def report_json(report: Report) -> str:
    """Return the report as JSON text."""
    return json_text(report_document(report))


def json_text(document: Any, *, indent: int | None = 2) -> str:
    """Return a document as JSON: NaN and infinity as null, terminal control characters escaped."""
    text = json.dumps(finite(document), indent=indent, ensure_ascii=False, allow_nan=False)
    return safe_json(text)


def _conversion(conversion: Conversion | None) -> dict[str, Any] | None:
    if conversion is None:
        return None
    return {
        "format": conversion.format,
        "dropped": list(conversion.dropped),
        "aliases": dict(conversion.aliases),
        "wrapper": conversion.wrapper,
    }


def _upload(upload: HubUpload | None) -> dict[str, Any] | None:
    if upload is None:
        return None
    return {
        "address": upload.address,
        "files": list(upload.files),
        "is_new": upload.is_new,
        "pull_request": upload.pull_request,
        "url": upload.url,
        "reason": upload.reason,
    }


def traffic_document(used: Traffic | None) -> dict[str, Any] | None:
    """Return the requests and bytes of a run as plain data; None if no store was used."""
    if used is None:
        return None
    return {
        "requests": used.requests,
        "received": used.received,
        "sent": used.sent,
        "copied_by_the_store": used.copied,
        "notes": list(used.notes),
    }


def request_document(request: Request) -> dict[str, Any]:
    """Return the request as plain data; an option that was not given is null."""
    return request_values(request)


def table_document(table: PositionTable) -> dict[str, Any]:
    """Return a located table as plain data; shared by the report and `inspect`."""
    return {
        "name": table.name,
        "family": table.family.name,
        "kind": table.role.value,
        "dtype": table.tensor.dtype,
        "from": _extent(table, table.grid, table.tensor.shape, table.frames),
        "prefix": table.prefix,
        "suffix": table.suffix,
        "patch": None if table.patch is None else [table.patch.height, table.patch.width],
        "evidence": list(table.evidence),
    }


def left_alone_document(entry: LeftAlone) -> dict[str, Any]:
    """Return, as plain data, a tensor that has a table's name but is not one."""
    return {
        "name": entry.tensor.name,
        "family": entry.family.name,
        "kind": entry.family.role.value,
        "dtype": entry.tensor.dtype,
        "from": {"shape": list(entry.tensor.shape)},
        "to": {"shape": list(entry.tensor.shape)},
        "action": "keep",
        "reason": entry.family.why,
        "measures": {},
        "checks": [],
    }


def _table_report(report: TableReport) -> dict[str, Any]:
    step = report.step
    operation = step.operation
    resampling = None if operation is None else operation.resampling
    described = table_document(step.table)
    described.pop("evidence")
    return {
        **described,
        "name": step.name,
        "kind": step.kind,
        "dtype": step.tensor.dtype,
        "action": step.action.value,
        "to": _extent(step.table, step.target, step.target_shape, step.frames),
        "method": None if operation is None else operation.method_name,
        "antialias": None if resampling is None else resampling.antialias,
        "norms_restored": restores_norms(operation),
        "convention": _convention(step),
        "own_convention": step.own_convention,
        "reason": step.reason,
        "evidence": list(step.evidence),
        "measures": dict(report.measures),
        "conventions": [peer_document(peer) for peer in report.peers],
        "checks": checks_document(report.checks),
    }


def checks_document(checks: Iterable[Check]) -> list[dict[str, str]]:
    """Return judged measures as plain data."""
    return [{"name": c.name, "level": c.level.value, "detail": c.detail} for c in checks]


def health_document(health: Health) -> dict[str, Any]:
    """Return the health of a table as plain data."""
    return {
        "kind": health.kind.value,
        "detail": health.detail,
        "signs": [asdict(sign) for sign in health.signs],
        "numbers": dict(health.numbers),
    }


def peer_document(peer: Peer) -> dict[str, Any]:
    """Return the result of another library's convention as plain data."""
    return {
        "name": peer.convention,
        "method": peer.resampling.method.value,
        "antialias": peer.resampling.antialias,
        "distance": peer.distance,
        "norm_ratio": peer.norm_ratio,
    }


def restores_norms(operation: Operation | None) -> bool:
    """Whether each new vector was rescaled to the interpolated norm."""
    return isinstance(operation, Resample) and operation.restore_norms


def _convention(step: Step) -> str | None:
    """Return a library that resizes exactly so; the family's own library is preferred."""
    own = step.table.family.convention
    known: list[Convention | RelativeConvention] = [
        *CONVENTIONS.values(),
        *RELATIVE_CONVENTIONS.values(),
    ]
    done = None if step.operation is None else step.operation.resampling
    if done is None or step.table.role is Role.SEQUENCE or restores_norms(step.operation):
        return None  # no library restores norms
    if own is not None and own.resampling == done:
        return own.name
    return next((c.name for c in known if c.resampling == done), None)


def _extent(
    table: PositionTable, grid: Grid, shape: tuple[int, ...], frames: int
) -> dict[str, Any]:
    rows = table.layout.rows(shape)
    if table.role is Role.SEQUENCE:
        return {"length": grid.width, "rows": rows, "shape": list(shape)}
    extent = {"grid": [grid.height, grid.width], "rows": rows, "shape": list(shape)}
    return extent | ({"frames": frames} if table.layout.has_time else {})
