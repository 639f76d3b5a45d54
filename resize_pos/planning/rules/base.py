"""The inputs of a rule: a matched tensor, all other evidence, and the request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from resize_pos.configs.model_types import FILE as MODEL_FILE
from resize_pos.configs.model_types import ConfigModel, config_models
from resize_pos.configs.read import ConfigFiles, ConfigSize
from resize_pos.containers.base import Container
from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family
from resize_pos.families.registry import registry
from resize_pos.families.tables import PositionTable, Step
from resize_pos.planning.geometry.grid_solver import Geometry, RowCount
from resize_pos.planning.provenance import recorded_geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Settle = Callable[["Match", "Surroundings", Mapping[str, PositionTable]], PositionTable]
    PlanStep = Callable[[PositionTable, Request, Mapping[str, Step]], Step]

Found = TypeVar("Found")

# The reason of a step that keeps a mask, although the model of the new size has none.
NO_MASK = "at the new size its stage is one window, which is not shifted, so the model has no mask"


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor whose name, siblings and shape fit a family."""

    tensor: TensorInfo
    family: Family
    stem: str
    layout: Layout
    prefixes: tuple[RowCount, ...] = ()  # rows that may stand before the grid; default: the family
    suffixes: tuple[RowCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All evidence about a tensor's geometry besides the tensor itself."""

    tensors: Mapping[str, TensorInfo]
    request: Request
    configs: Sequence[ConfigSize] = ()
    known: Mapping[str, Geometry] = field(default_factory=dict)  # recorded in the file itself
    read: Callable[[str], NDArray[Any]] | None = None  # values, if names and shapes are ambiguous
    peek: Callable[[str, int, int], bytes] | None = None  # a few bytes: tensor, start, count
    models: Sequence[ConfigModel] = ()
    files: ConfigFiles = field(default_factory=ConfigFiles)  # the folder of the configs and models
    states: tuple[str, ...] = ()  # how the names of optimizer state begin
    graph_size: Size | None = None  # of the image that an exported graph reads
    graph_rows: tuple[int, int] | None = None  # that it puts before and after its patches
    many: bool = False  # the request is for many files: its sizes are pixels in each of them
    _found: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, container: Container, request: Request, *, many: bool = False) -> Surroundings:
        """Collect the evidence in an opened checkpoint and in the config files of its folder."""
        files = ConfigFiles(container.config_folder)
        stated = container.image_sizes.items()
        sizes, name = set(container.image_sizes.values()), container.path.name
        # The graph itself is checked at the new size, with these layers.
        layers, added = container.layer_weights, container.added_tables
        return cls(
            {n: t for n, t in container.tensors.items() if n not in layers}
            if layers
            else container.tensors,
            _with_added_tables(request, added),
            (*(ConfigSize(name, key, size, None) for key, size in stated), *files.sizes()),
            recorded_geometry(container.metadata),
            container.read,
            container.peek,
            config_models(files.documents([MODEL_FILE])),
            files,
            tuple(f"{optimizer.state}." for optimizer in container.optimizers),
            next(iter(sizes)) if container.holds_graph and len(sizes) == 1 else None,
            _common(added.values()),
            many,
        )

    def once(self, key: object, find: Callable[[], Found]) -> Found:
        """Compute a value once and cache it: thousands of tables may ask for the same one."""
        if key not in self._found:
            try:
                self._found[key] = find()
            except GeometryError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, GeometryError):
            raise found
        return cast("Found", found)


def _with_added_tables(request: Request, added: Mapping[str, tuple[int, int] | None]) -> Request:
    """Name the tables that a graph adds to its patches, if no family knows their names."""
    if not added or request.pattern or request.axes or request.family:
        return request
    families = registry().candidates
    unknown = [n for n in added if all(f.stem(n) is None for f in families(n))]
    names = tuple(f"^{re.escape(name)}$" for name in unknown)
    if not names:
        return request
    return with_rows_around(replace(request, pattern=names), _common(added[n] for n in unknown))


def with_rows_around(request: Request, rows: tuple[int, int] | None) -> Request:
    """State the rows before and after the grid, as the graph joins them, unless flags do."""
    if rows is None or request.prefix is not None or request.suffix is not None:
        return request
    return replace(request, prefix=rows[0], suffix=rows[1])


def _common(rows: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return the rows around the grid, if they are known and the same for all tables."""
    found = set(rows)
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Rule:
    """How tables of one role are determined and planned: names of functions beside this module.

    Both functions see the results of earlier roles.
    """

    settles: str | None
    plans: str

    @property
    def settle(self) -> Settle:
        """The function that determines the geometry of a table."""
        assert self.settles is not None
        return cast("Settle", _function(self.settles))

    @property
    def plan(self) -> PlanStep:
        """The function that says what a request makes of a table."""
        return cast("PlanStep", _function(self.plans))


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def along(layout: Layout, grid: Grid) -> Grid:
    """Restrict a grid to the axes that a table has."""
    axes = layout.axes
    return Grid(grid.height if "h" in axes else 1, grid.width if "w" in axes else 1)
