"""The `Report`: what was planned, done, measured and judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.configs.advice import ConfigAdvice
from resize_pos.configs.keys import Library
from resize_pos.configs.timm_models import KnownModel
from resize_pos.configs.values import ConfigEdit
from resize_pos.containers.base import Copied
from resize_pos.containers.reformat import Conversion
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.notes import Note
from resize_pos.core.printable import printable
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, Step
from resize_pos.planning.plan import Plan
from resize_pos.quality.checks import Check, Level, worst
from resize_pos.quality.measures.catalogue import Peer
from resize_pos.report.fine_tuning import (
    AFTER_A_WARNING,
    NOTHING,
    PUBLISHED,
    SUGGESTION,
    TEXT_SUGGESTION,
)

if TYPE_CHECKING:
    from resize_pos.containers.base import LeftOut
    from resize_pos.containers.remote.traffic import Traffic
    from resize_pos.quality.pictures import StepPictures


class Status(StrEnum):
    """How a run ended."""

    PLANNED = "planned"
    RESIZED = "resized"
    UNCHANGED = "unchanged"
    CONVERTED = "converted"  # written in another format, or one of several copies; same tables


@dataclass(frozen=True, slots=True)
class TableReport:
    """One step with what was measured on its result."""

    step: Step
    measures: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    peers: tuple[Peer, ...] = ()  # what other libraries would have made of it
    pictures: StepPictures | None = None  # only on request, for one of several alike tables


@dataclass(frozen=True, slots=True)
class FineTune:
    """Which parameters were interpolated, and what to do about it."""

    parameters: tuple[str, ...]
    suggestion: str
    references: tuple[str, ...] = ()  # settings that others have published, with their source


def reasons(checks: Iterable[Check]) -> list[str]:
    """Say what was found wrong, one line each."""
    found = (
        f"  {check.level.value}: {check.detail}" for check in checks if check.level != Level.OK
    )
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class HubUpload:
    """An upload to the hub."""

    address: str  # hf://org/name
    files: tuple[str, ...]  # names in the repository; empty in a dry run
    is_new: bool  # the repository did not exist before
    pull_request: bool
    url: str | None = None  # of the commit or the pull request; None: nothing was uploaded
    reason: str = ""  # why nothing was uploaded


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run."""

    source: Path
    output: Path | None  # None: nothing was written, or would be
    status: Status
    plan: Plan
    tables: tuple[TableReport, ...]
    copied: Copied
    seconds: float
    sha256: str | None = None  # of the output; computed only if a document is requested
    holds_graph: bool = False  # the output is a whole program, which no model code builds
    config_advice: tuple[ConfigAdvice, ...] = ()  # config changes that the user must make
    size_edits: tuple[ConfigEdit, ...] = ()  # of values that the checkpoint itself holds
    left_out: tuple[LeftOut, ...] = ()  # files that are not copied to the new folder
    config_library: Library | None = None  # of the configs that a folder holds
    architecture: str | None = None  # the class of transformers that saved a folder
    known_model: KnownModel | None = None  # what the weights of a bare file belong to
    wrapper: str | None = ""  # the entry of the output that holds the weights; None: several do
    copies: Mapping[str, str] = field(default_factory=dict)  # tensors of further weight files
    conversion: Conversion | None = None  # set: the output is of another file format
    traffic: Traffic | None = None  # requests and bytes, if a store was used
    output_bytes: int | None = None  # of a plan: what the output takes at most
    upload: HubUpload | None = None  # to the hub, if one was asked for
    needs_force: bool = False  # of a plan: the target exists, and only --force would replace it

    @property
    def config_edits(self) -> tuple[ConfigEdit, ...]:
        """Every value that is changed with the weights: in config files and in the checkpoint."""
        return (*self.plan.config_edits, *self.size_edits)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the user should know besides the tables."""
        return self.plan.notes

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The notes that make the verdict `warn`."""
        return tuple(Check("note", Level.WARN, n.text) for n in self.notes if n.warning)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every warning, and every check of every table."""
        of_tables = (check for table in self.tables for check in table.checks)
        return (*self.warnings, *of_tables)

    @property
    def verdict(self) -> Level:
        """The most severe check."""
        return worst(self.checks)

    @property
    def fine_tune(self) -> FineTune:
        """Advice for the next step; published recipes are included for images only."""
        resized = [
            t.step.table
            for t in self.tables
            if t.step.action is Action.RESIZE and t.step.state is None
        ]
        names = tuple(dict.fromkeys(self.copies.get(table.name, table.name) for table in resized))
        if not names:
            return FineTune((), NOTHING)
        if all(table.role is Role.SEQUENCE for table in resized):
            return FineTune(names, TEXT_SUGGESTION)
        suggestion = SUGGESTION if self.verdict is Level.OK else AFTER_A_WARNING
        return FineTune(names, suggestion, tuple(map(str, PUBLISHED)))

    def __str__(self) -> str:
        """Sum it up for `print`: what was done, the verdict with its reasons, and the tables."""
        from resize_pos.report.groups import change_words, grouped  # only where it is printed

        changed = [table for table in self.tables if table.step.action is not Action.KEEP]
        lines = [f"{self.status.value}: {self.output or self.source}"]
        if self.status is Status.RESIZED:
            lines.append(f"verdict: {self.verdict.value}")
        lines += reasons(self.checks)
        lines += [f"  {group.name}  {change_words(group.step)}" for group in grouped(changed)]
        return "\n".join(map(printable, lines))

    def exit_code(self, *, strict: bool = False) -> int:
        """0: done; 3: a check failed, or warned with `strict`."""
        refused = (Level.WARN, Level.FAIL) if strict else (Level.FAIL,)
        return 3 if self.verdict in refused else 0
