"""A batch's document as a file: JSON, Markdown, or one page with a table that can be sorted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from resize_pos.core.errors import OutputError, UsageError

_Document = Mapping[str, Any]


def require_batch_report_targets(paths: Iterable[Path]) -> None:
    """Refuse an unknown suffix or a missing folder before any work is done."""
    for path in paths:
        if path.suffix.lower() not in _WRITERS:
            raise UsageError(
                f"--report {path}: a batch's report is written as {', '.join(_WRITERS)}.",
                hint=f"name it {path.stem or 'zoo'}.html",
            )
        if not path.parent.is_dir():
            raise OutputError(f"--report {path}: the folder {path.parent} does not exist.")


def write_batch_reports(document: _Document, paths: Iterable[Path]) -> None:
    """Write every report that was asked for."""
    for path in paths:
        text = _WRITERS[path.suffix.lower()](document, path.parent)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"--report {path}: {error.strerror}.") from error


def batch_markdown(document: _Document) -> str:
    """Write a table for a step summary or a pull request."""
    lines = ["## resize-pos batch", "", f"{count_words(document['counts'])}.", ""]
    return "\n".join([*lines, *_markdown_rows(document["jobs"])]) + "\n"


def _markdown_rows(jobs: Iterable[_Document]) -> list[str]:
    lines = ["| checkpoint | status | tables | verdict | |", "|---|---|---|---|---|"]
    for row in map(_row, jobs):
        cells = (f"`{row['source']}`", row["status"], row["tables"], row["verdict"], row["reason"])
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return lines


def count_words(counts: Mapping[str, int]) -> str:
    """Say how many jobs ended how."""
    words = {
        "planned": "planned",
        "resized": "done",
        "unchanged": "unchanged",
        "current": "current",
        "warned": "warned",
        "failed": "failed",
        "not_started": "not started",
    }
    always = ("resized", "failed") if not counts.get("planned") else ("planned", "failed")
    parts = [f"{counts[k]} {w}" for k, w in words.items() if counts.get(k) or k in always]
    return ", ".join(parts)


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _row(job: Mapping[str, Any]) -> dict[str, Any]:
    """Give the cells of one job."""
    tables = job.get("tables") or ()
    changed = [table for table in tables if table["action"] != "keep"]
    reasons = [c["detail"] for c in job.get("checks") or () if c["level"] != "ok"]
    if job["status"] == "failed":
        reasons = [f"{job['error']} {job['hint'] or ''}".strip()]
    failed = job["status"] == "failed"
    return {
        "number": job["job"]["number"],
        "source": job["source"],
        "output": job["output"],
        "status": job["status"],
        "tables": "; ".join(dict.fromkeys(map(_change, changed))),
        "verdict": "" if failed or not job.get("verdict") else job["verdict"],
        "reason": "; ".join(dict.fromkeys(reasons)),
        "bytes": job["job"]["bytes"],
        "seconds": job.get("seconds"),
        "reports": job["job"]["reports"],
    }


def _change(table: Mapping[str, Any]) -> str:
    def extent(side: Mapping[str, Any]) -> str:
        grid = side.get("grid")
        return str(side.get("length")) if grid is None else "×".join(map(str, grid))

    return f"{extent(table['from'])} → {extent(table['to'])}"


def _json(document: _Document, folder: Path) -> str:
    del folder
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _markdown(document: _Document, folder: Path) -> str:
    del folder
    return batch_markdown(document)


def _html(document: _Document, folder: Path) -> str:
    import jinja2  # only who asks for a page pays for it

    rows = [_row(job) for job in document["jobs"]]
    for row in rows:
        row["links"] = [Path(os.path.relpath(path, folder)).as_posix() for path in row["reports"]]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(
        files("resize_pos.report").joinpath("batch.html").read_text(encoding="utf-8")
    )
    return template.render(
        document=document, rows=rows, counts=document["counts"], words=count_words
    )


_WRITERS: Mapping[str, Callable[[_Document, Path], str]] = {
    ".json": _json,
    ".md": _markdown,
    ".html": _html,
}
