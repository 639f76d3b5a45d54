"""The one protocol behind which every file format lives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz")


@dataclass(frozen=True, slots=True)
class Copied:
    """What a writer carried over without reading it."""

    tensors: int
    bytes: int
    files: int = 0  # of a folder: what is neither weights nor an edited config
    linked: int = 0  # files that are hard links to the source's

    def __add__(self, other: Copied) -> Copied:
        return Copied(
            self.tensors + other.tensors,
            self.bytes + other.bytes,
            self.files + other.files,
            self.linked + other.linked,
        )


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """An optimizer's state dict inside of a checkpoint: which parameters, in which groups."""

    name: str  # where it lies in the checkpoint; empty: it is the checkpoint
    groups: tuple[tuple[str, ...], ...]  # keys into its state, in order
    parameters: tuple[tuple[str, ...], ...]  # their names, where the optimizer knew them
    models: tuple[tuple[str, ...], ...] = ()  # the tensors of each state dict beside it, in order

    @property
    def state(self) -> str:
        """The name under which the entries lie, one for each parameter."""
        return f"{self.name}.state" if self.name else "state"


class Container(Protocol):
    """A checkpoint whose header has been read and validated; tensors are read one by one."""

    @property
    def path(self) -> Path:
        """Where it lies."""

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor, in the file's own order."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Free-form strings kept in the file."""

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how large the file becomes when these tensors take these shapes."""

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it."""


@runtime_checkable
class TrainingCheckpoint(Protocol):
    """A checkpoint that may hold optimizers beside the weights."""

    @property
    def optimizers(self) -> tuple[OptimizerState, ...]:
        """Every optimizer state dict, in the file's own order."""

    def without(self, entries: Collection[str]) -> Container:
        """Give the same checkpoint without these entries of its optimizers' states."""


@dataclass(frozen=True, slots=True, eq=False)
class Promised:
    """New tensors that are still being computed."""

    shapes: Mapping[str, tuple[int, ...]]
    wait: Callable[[], Mapping[str, NDArray[Any]]]
    failed: Callable[[], bool]  # whether waiting would raise

    @classmethod
    def kept(cls, arrays: Mapping[str, NDArray[Any]]) -> Promised:
        """Promise what is there already."""
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        return cls(shapes, lambda: arrays, lambda: False)


@runtime_checkable
class EarlyWriter(Protocol):
    """A container whose bytes can be copied before the new tensors are known."""

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Do what `write` does, and wait for the new tensors only when all else is written."""


@runtime_checkable
class PartialReader(Protocol):
    """A container that can look at a few bytes of a tensor, so that a look needs no arrays."""

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""


def missing(path: Path) -> ContainerError:
    """Say that nothing is there, and where that is."""
    return ContainerError(f"{path.name}: no such file.", f"Looked for {path.absolute()}")


def peek_into(container: Container, name: str, start: int, count: int) -> bytes:
    """Look at a few bytes of a tensor; where only whole tensors can be read, read it."""
    if isinstance(container, PartialReader):
        return container.peek(name, start, count)
    return container.read(name).tobytes()[start : start + count]
