"""What a rule is given: a matched tensor, everything around it, and the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from resize_pos.configs.read import ConfigSize
from resize_pos.configs.text_read import ConfigText
from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family
from resize_pos.families.tables import PositionTable, Step
from resize_pos.planning.grid_solver import Geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor whose name, siblings and shape fit a family."""

    tensor: TensorInfo
    family: Family
    stem: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Every evidence there is besides the tensor itself."""

    tensors: Mapping[str, TensorInfo]
    request: Request
    configs: Sequence[ConfigSize] = ()
    known: Mapping[str, Geometry] = field(default_factory=dict)  # recorded in the file itself
    read: Callable[[str], NDArray[Any]] | None = None  # values, for what names leave open
    peek: Callable[[str, int, int], bytes] | None = None  # a few bytes: tensor, start, count
    texts: Sequence[ConfigText] = ()
    _found: dict[object, object] = field(default_factory=dict, repr=False)

    def once(self, key: object, find: Callable[[], Found]) -> Found:
        """Find something out once for all the tables that ask for it; thousands may."""
        if key not in self._found:
            try:
                self._found[key] = find()
            except GeometryError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, GeometryError):
            raise found
        return cast("Found", found)


@dataclass(frozen=True, slots=True)
class Rule:
    """How one role is settled and planned. Both look at what earlier roles came to."""

    # None: nothing is matched by name; such tables are found through others.
    settle: Callable[[Match, Surroundings, Mapping[str, PositionTable]], PositionTable] | None
    plan: Callable[[PositionTable, Request, Mapping[str, Step]], Step]
