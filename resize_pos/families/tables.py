"""The data passed from locating to executing: position tables, and the steps planned for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.operations import Operation, SinCosTable
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role

if TYPE_CHECKING:
    from resize_pos.families.windows import Reach


@dataclass(frozen=True, slots=True)
class PositionTable:
    """A position tensor, what it is, and how its rows are laid out."""

    tensor: TensorInfo
    family: Family
    stem: str  # the part of the name before the family's key: the tower it belongs to
    layout: Layout
    grid: Grid  # patches; for a relative table the window whose offsets it holds
    prefix: int = 0
    suffix: int = 0
    patch: Size | None = None
    evidence: tuple[str, ...] = ()
    follows: str | None = None  # the table whose geometry this one shares
    reach: Reach | None = None  # what is known about a relative table's window
    fixed: SinCosTable | None = None  # the sin-cos formula that its values follow
    window: Size | None = None  # pixels that one cell sees, if patches overlap
    frames: int = 1  # grids in the table, one per frame or tube of frames
    tube: int = 1  # frames per cell
    kernel: str | None = None  # the patch embedding that gave the patch size
    stated: Size | None = None  # the image size that a flag or a config states for this grid

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.tensor.name

    @property
    def role(self) -> Role:
        """What its rows stand for."""
        return self.family.role

    @property
    def tiling(self) -> Tiling | None:
        """How the image is divided into cells, if known."""
        return None if self.patch is None else Tiling(self.patch, self.window)

    @property
    def pixels(self) -> Size | None:
        """The size of its image, if it can be determined: as stated, or the pixels of its grid."""
        tells = self.role not in (Role.REFERENCE, Role.KERNEL) and not self.family.scaled
        if self.tiling is None or not tells or not {"h", "w"} <= self.layout.axes:
            return None
        return self.stated or self.tiling.pixels(self.grid)

    @property
    def length(self) -> int:
        """Positions of a 1-D table, as the model counts them: without prefix and suffix."""
        return self.grid.cells


OF_IMAGES = frozenset(
    {
        Role.ABSOLUTE,
        Role.MIXING,
        Role.RELATIVE,
        Role.DISTANCE,
        Role.REFERENCE,
        Role.INDEX,
    }
)


def is_all_text(roles: Iterable[Role]) -> bool:
    """Whether tables of these roles belong to texts only, and none to an image."""
    present = set(roles)
    return Role.SEQUENCE in present and not present & OF_IMAGES


class Action(StrEnum):
    """What happens to a table."""

    RESIZE = "resize"  # its values are interpolated
    REGENERATE = "regenerate"  # its values are recomputed from their formula
    SCALE = "scale"  # its values are multiplied by a factor
    KEEP = "keep"
    DROP = "drop"  # an optimizer's state is removed


@dataclass(frozen=True, slots=True)
class OptimizerTensor:
    """A tensor of an optimizer's state that belongs to a position table."""

    tensor: TensorInfo
    entry: str  # the name under which all state of that table is stored
    evidence: tuple[str, ...]  # why it belongs to the table


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to one tensor: to a table, or to an optimizer's state of it."""

    table: PositionTable
    action: Action
    target: Grid
    target_shape: tuple[int, ...]
    operation: Operation | None  # None: the bytes stay unchanged
    reason: str
    own_convention: str | None = None  # the family's own, where it differs from what is done
    frames: int = 1  # after the step
    state: OptimizerTensor | None = None  # set: the step changes this tensor, not the table

    @property
    def tensor(self) -> TensorInfo:
        """The tensor that the step is about."""
        return self.table.tensor if self.state is None else self.state.tensor

    @property
    def name(self) -> str:
        """The name of that tensor."""
        return self.tensor.name

    @property
    def kind(self) -> str:
        """The kind for the report: the table's role, or optimizer state."""
        return self.table.role.value if self.state is None else "optimizer"

    @property
    def evidence(self) -> tuple[str, ...]:
        """The evidence for its geometry."""
        return self.table.evidence if self.state is None else self.state.evidence


def stored_grid(role: Role, grid: Grid) -> Grid:
    """Return the stored grid: cells, or offsets −(n−1) … n−1 for a relative table's window."""
    if role is not Role.RELATIVE:
        return grid
    return Grid(2 * grid.height - 1, 2 * grid.width - 1)


def stored_frames(role: Role, frames: int) -> int:
    """Return the stored frames or slices: offsets −(n−1) … n−1 for a relative table."""
    return frames if role is not Role.RELATIVE else 2 * frames - 1


def keep(table: PositionTable, reason: str) -> Step:
    """Plan to keep a table unchanged."""
    shape = table.tensor.shape
    return Step(table, Action.KEEP, table.grid, shape, None, reason, frames=table.frames)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A tensor that is certainly a table, but whose geometry the user must state."""

    tensor: TensorInfo
    family: Family
    error: GeometryError


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A tensor whose name suggests a position table, but which matches no family."""

    tensor: TensorInfo
    reason: str


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A tensor that looks like a position table, but is known not to depend on the resolution."""

    tensor: TensorInfo
    family: Family


@dataclass(frozen=True, slots=True)
class Shown:
    """What the values of a tensor show: why it depends on the image, and on which table's grid."""

    reason: str
    table: str = ""  # empty: no table was found
    axes: str = ""  # with which --pattern resizes it; empty: it is not resized


@dataclass(frozen=True, slots=True)
class Located:
    """Everything that was found from names and shapes."""

    tables: tuple[PositionTable, ...]
    unsettled: tuple[Unsettled, ...]
    near_misses: tuple[NearMiss, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    pictured: bool = False  # a config states an image size, with or without tables
    many: bool = False  # the request is for many files: its sizes are pixels in each of them
    others: Mapping[str, TensorInfo] = field(default_factory=dict)  # every tensor of the file
    looks_like: tuple[NearMiss, ...] = ()  # may be tables; too little evidence to change them
    shown: Mapping[str, Shown] = field(default_factory=dict)  # values that show a grid
    graph_size: Size | None = None  # the input of a graph, if the tables were read with it

    @property
    def filmed(self) -> bool:
        """Whether a patch embedding reads colours of several frames, with or without tables."""
        shapes = (info.shape for info in self.others.values())
        return any(len(shape) == 5 and shape[1] <= 4 <= min(shape[3:]) for shape in shapes)

    @property
    def all_text(self) -> bool:
        """Whether every table is 1-D, so that sizes in a request mean lengths."""
        if self.pictured or self.many:
            return False
        families = [table.family for table in self.tables]
        families += [entry.family for entry in self.unsettled]
        return is_all_text(family.role for family in families)
