"""Request + tables → a `Plan`: every decision as a value. All refusals about geometry end here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resize_pos.config_edits import plan_config_edits
from resize_pos.config_values import ConfigEdit, Transfer
from resize_pos.configs import Document
from resize_pos.errors import TableError, UsageError
from resize_pos.families import Role
from resize_pos.geometry import Size
from resize_pos.request import Request
from resize_pos.rules import RULES
from resize_pos.tables import Action, Located, NearMiss, PositionTable, Step, keep
from resize_pos.tensors import DTYPES

_IMAGE = frozenset({Role.ABSOLUTE, Role.RELATIVE, Role.DISTANCE})


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run will do, decided from names, shapes and configs alone."""

    request: Request
    steps: tuple[Step, ...]
    from_size: Size | None  # of the first table whose patch size is known
    to_size: Size | None
    near_misses: tuple[NearMiss, ...]
    config_edits: tuple[ConfigEdit, ...] = ()

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that alter a tensor."""
        untouched = (Action.KEEP, Action.DROP)
        return tuple(step for step in self.steps if step.action not in untouched)

    @property
    def drops(self) -> tuple[str, ...]:
        """The entries of optimizers that are taken out."""
        states = (step.table.state for step in self.steps if step.action is Action.DROP)
        return tuple(dict.fromkeys(state.entry for state in states if state is not None))


def make_plan(
    located: Located, request: Request, documents: Mapping[str, Document] | None = None
) -> Plan:
    """Decide, for every table found, what it becomes; refuse rather than convert by halves.

    `documents` are the config files that lie with the weights; what they state is changed along.
    """
    if not request.to_image and request.to_window is None:
        raise UsageError("no target is given.", hint="pass --to SIZE, for example --to 384.")
    if located.unsettled:
        raise located.unsettled[0].error
    if not any(table.role in _IMAGE for table in located.tables):
        raise _nothing_found(located, request)
    _require_windows(located, request)
    planned: dict[str, Step] = {}
    for role, rule in RULES.items():
        for table in located.tables:
            if table.role is role:
                asked = request.to_image or role is not Role.ABSOLUTE
                planned[table.name] = (
                    rule.plan(table, request, planned)
                    if asked
                    else keep(table, "no image size was asked for (--to)")
                )
    steps = tuple(planned[table.name] for table in located.tables)
    for step in steps:
        if step.action is Action.RESIZE:
            _require_floating(step.table)
    from_size, to_size = _sizes(steps)
    edits = plan_config_edits(documents or {}, Transfer.of(steps))
    return Plan(request, steps, from_size, to_size or request.to_size, located.near_misses, edits)


def default_output(source: Path, plan: Plan, *, folder: bool = False) -> Path:
    """Name the target: `NAME-384.suffix` beside the source; by its grid if pixels are unknown."""
    size, grid = plan.request.to_size or plan.to_size, plan.request.to_grid
    tag = str(size) if size is not None or grid is None else f"grid{grid.height}x{grid.width}"
    window = plan.request.to_window
    if window is not None:
        shown = f"window{Size(window.height, window.width)}"
        tag = f"{tag}-{shown}" if plan.request.to_image else shown
    if folder:
        return source.with_name(f"{source.name}-{tag}")
    return source.with_name(f"{source.stem}-{tag}{source.suffix}")


def _sizes(steps: tuple[Step, ...]) -> tuple[Size | None, Size | None]:
    for step in steps:
        patch = step.table.patch
        if patch is not None:
            return step.table.grid.pixels(patch), step.target.pixels(patch)
    return None, None


def _require_windows(located: Located, request: Request) -> None:
    if request.to_window is None or any(t.reach and t.reach.nominal for t in located.tables):
        return
    raise UsageError(
        f"--to-window {request.to_window}: no table in this file follows a window.",
        hint="pass --to SIZE; `resize-pos inspect` says what each table follows.",
    )


def _require_floating(table: PositionTable) -> None:
    dtype = DTYPES[table.tensor.dtype]
    if not dtype.floating:
        raise TableError(
            f"{table.name} is stored as {dtype.name}; integer and quantised tables cannot be "
            "interpolated.",
            hint="convert it to a floating dtype first.",
        )


def _nothing_found(located: Located, request: Request) -> TableError:
    if request.pattern is not None:
        return TableError(
            f"--pattern {request.pattern!r} with --axes {request.axes!r} matches no tensor.",
            hint="`resize-pos inspect` lists what there is.",
        )
    texts = [table.name for table in located.tables if table.role is Role.SEQUENCE]
    if texts:
        return TableError(f"only text tables were found ({', '.join(texts)}), and no image grid.")
    if not located.near_misses:
        return TableError(
            "no position table was found.",
            hint="`resize-pos inspect -v` lists every tensor; name a table with --pattern and "
            "--axes.",
        )
    miss = located.near_misses[0]
    return TableError(
        f"no position table was found; {miss.tensor} is near: {miss.reason}.",
        hint="name it with --pattern REGEX and --axes, for example --axes '1 (p h w s) d'.",
    )
