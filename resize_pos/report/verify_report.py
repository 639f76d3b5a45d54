"""The result of `verify` as a value and as one JSON document, schema `resize-pos/verify/1`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos._version import __version__
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.printable import printable
from resize_pos.quality.checks import LABEL, Level
from resize_pos.report.json import (
    checks_document,
    health_document,
    peer_document,
    table_document,
    traffic_document,
)
from resize_pos.report.report import reasons
from resize_pos.verify.against_source import TableVerification, Verification
from resize_pos.verify.images import Probe
from resize_pos.verify.made_by.methods import ConventionMatch
from resize_pos.verify.models import ForwardPass

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic

SCHEMA = "resize-pos/verify/1"


@dataclass(frozen=True, slots=True)
class Verified:
    """Everything that a verification found; None for what was not requested."""

    output: Path
    against: Verification | None = None
    model: ForwardPass | None = None
    probe: Probe | None = None
    traffic: Traffic | None = None  # requests and bytes, if a store was used

    @property
    def verdict(self) -> Level:
        """The most severe check; loading a model adds no checks."""
        return Level.OK if self.against is None else self.against.verdict

    def __str__(self) -> str:
        """Sum it up for `print`: the verdict with its reasons, and which model took it."""
        lines = [f"verdict: {self.verdict.value}"] if self.against is not None else []
        lines += reasons(self.against.checks) if self.against is not None else []
        if self.model is not None:
            lines.append(f"{self.model.model} loads it strictly at {self.model.size} px")
        return "\n".join(map(printable, lines))

    def exit_code(self, *, strict: bool = False) -> int:
        """0: sound; 3: a check failed, or warned with `strict`."""
        refused = (Level.WARN, Level.FAIL) if strict else (Level.FAIL,)
        return 3 if self.verdict in refused else 0


def verified_document(verified: Verified) -> dict[str, Any]:
    """Return the outcome as plain data."""
    held = verified.against
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "output": str(verified.output),
        "source": None if held is None else str(held.source),
        "verdict": verified.verdict.value,
        "judged_by": LABEL,
        "untouched": None,
        "tables": [],
        "checks": [],
        "model": None,
        "probe": None if verified.probe is None else asdict(verified.probe),
        "traffic": traffic_document(verified.traffic),
    }
    if held is not None:
        document["untouched"] = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(held.untouched).items()
            if key != "notes"  # these are among the checks
        }
        document["tables"] = [_table(table) for table in held.tables]
        document["checks"] = checks_document(held.checks)
    if verified.model is not None:
        ran = verified.model
        document["model"] = {
            "name": ran.model,
            "size": [ran.size.height, ran.size.width],
            "shape": list(ran.shape),
            "parameters": ran.parameters,
        }
    return document


def _table(table: TableVerification) -> dict[str, Any]:
    step, health = table.step, table.health
    return {
        **table_document(step.table),
        "to": {"grid": [step.target.height, step.target.width], "shape": list(step.target_shape)},
        "made_by": None if table.made_by is None else match_document(table.made_by),
        "matches": [match_document(match) for match in table.matches],
        "diagnosis": None if table.diagnosis is None else asdict(table.diagnosis),
        "health": None if health is None else health_document(health),
        "measures": dict(table.measures),
        "conventions": [peer_document(peer) for peer in table.peers],
        "checks": checks_document(table.checks),
    }


def match_document(match: ConventionMatch) -> dict[str, Any]:
    """Return how close a convention is, as plain data."""
    return {
        "names": list(match.names),
        "method": match.resampling.method.value,
        "antialias": match.resampling.antialias,
        "coordinates": match.resampling.coordinates.value,
        "error": match.error,
        "exact": match.exact,
    }
