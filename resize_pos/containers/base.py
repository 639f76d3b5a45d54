"""What every file format has in common: the base classes of all containers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import native
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.notes import Note
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.reformat import Conversion, Exported


# Of a tensor in a store, all is read at once if it is small, else its beginning. Both leave room
# for the header and for a tensor's end within 1 MB.
_READ_WHOLE, BEGINNING = 704 << 10, 576 << 10


@dataclass(frozen=True, slots=True)
class Copied:
    """How much a writer copied without changing it."""

    tensors: int
    bytes: int
    files: int = 0  # in a folder: files that are neither weights nor edited configs
    linked: int = 0  # files that are hard links to the source's

    def __add__(self, other: Copied) -> Copied:
        return Copied(
            self.tensors + other.tensors,
            self.bytes + other.bytes,
            self.files + other.files,
            self.linked + other.linked,
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that is not copied to the new folder, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """An optimizer's state dict inside a checkpoint: which parameters, in which groups."""

    name: str  # its key in the checkpoint; empty: the whole checkpoint is this state
    groups: tuple[tuple[str, ...], ...]  # keys into its state, in order
    parameters: tuple[tuple[str, ...], ...]  # their names, if the optimizer stored them
    models: tuple[tuple[str, ...], ...] = ()  # the tensors of each state dict beside it, in order

    @property
    def state(self) -> str:
        """The name under which the entries lie, one for each parameter."""
        return f"{self.name}.state" if self.name else "state"


@dataclass(frozen=True, slots=True)
class GeometryChange:
    """What a plan changes, for a format that holds a program besides the weights."""

    shapes: Mapping[str, tuple[int, ...]]  # of the tensors that change
    from_size: Size | None  # of the image, in pixels
    to_size: Size | None
    grids: tuple[tuple[Grid, Grid], ...]  # of the tables, before and after
    via: GeometryChange | None = None  # to a size in between, if the shapes alone show too little


@dataclass(frozen=True, slots=True, eq=False)
class Promised:
    """New tensors that are still being computed."""

    shapes: Mapping[str, tuple[int, ...]]
    wait: Callable[[], Mapping[str, NDArray[Any]]]
    failed: Callable[[], bool]  # whether waiting would raise

    @classmethod
    def kept(cls, arrays: Mapping[str, NDArray[Any]]) -> Promised:
        """Wrap tensors that are already computed."""
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        return cls(shapes, lambda: arrays, lambda: False)


class Container:
    """A checkpoint whose header has been read and checked; tensors are read one by one.

    A format must implement the first group of members. The others have defaults, which a format
    overrides if it can do more or must behave differently.
    """

    __slots__ = ()

    # Declared as properties so that a format may use a field or a property. They do not exist at
    # run time: a dataclass would use an inherited property as the default value of its field.
    if TYPE_CHECKING:

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

    @abstractmethod
    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        raise NotImplementedError

    @abstractmethod
    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the output size, in bytes, if these tensors get these shapes."""
        raise NotImplementedError

    @abstractmethod
    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write a copy to `stage` in which only `changes` differ; `metadata` is added to it."""
        raise NotImplementedError

    # The members below have defaults.

    is_folder = False  # whether the output is a folder
    owns_configs = False  # whether the configs beside it belong to it and are edited with it
    holds_graph = False  # whether it is a whole program, so that no model code needs a new size

    @property
    def wrapper(self) -> str | None:
        """The entry that holds the weights; empty: the file itself; None: several entries do."""
        return ""

    @property
    def config_folder(self) -> Path:
        """The folder in which configs that describe the checkpoint are looked for."""
        return self.path.parent

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that hold its weights."""
        return (self.path.name,)

    @property
    def added_tables(self) -> Mapping[str, tuple[int, int] | None]:
        """The tensors that a graph adds to its patches, and the tokens before and after these."""
        return {}

    @property
    def layer_weights(self) -> frozenset[str]:
        """The tensors that a graph for one image size uses only as the matrix of a layer."""
        return frozenset()

    @property
    def optimizers(self) -> tuple[OptimizerState, ...]:
        """Every optimizer state dict beside the weights, in the file's own order."""
        return ()

    @property
    def copies(self) -> Mapping[str, str]:
        """The tensors of further weight files, each with its name in its own file."""
        return {}

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files that are not copied to a converted folder."""
        return ()

    output_tag = ""  # added to the default name of an output that is another kind of file

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a user should know about the file that is written."""
        return ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers stored beside the tensors that may state a size or a length, by name."""
        return {}

    @property
    def fixed_settings(self) -> Mapping[str, str]:
        """Why a setting cannot be changed, by name; missing or empty: it can."""
        return {}

    def with_settings(self, values: Mapping[str, object]) -> Container:
        """Return the same checkpoint, whose output has these settings."""
        raise ContainerError(f"{self.path.name}: {next(iter(values))} cannot be changed.")

    @property
    def conversion(self) -> Conversion | None:
        """What a change of the file format did, for the report."""
        return None

    def exported(self) -> Exported | None:
        """Return what can be written in another format; None: no other format is supported."""
        return None

    def selected(self, entry: str) -> Exported | None:
        """Return the tensors of one entry, without its name, for a new file; None: as above."""
        whole = self.exported()
        if whole is None:
            return None
        inside = {n: own for n, own in whole.names.items() if own.startswith(f"{entry}.")}
        names = {own.removeprefix(f"{entry}."): own for own in inside.values()}
        return replace(whole, names=names, aliases={}, wrapper=entry)

    def without(self, entries: Collection[str]) -> Container:
        """Return the same checkpoint without these entries of its optimizers' states."""
        raise ContainerError(f"{self.path.name}: has no entry {next(iter(entries))!r}.")

    def require_convertible(self, names: Collection[str]) -> None:
        """Raise, before anything is written, if a change of these tensors would break the model."""
        del names

    def rule_of(self, name: str) -> str | None:
        """Return the rule that all values of a tensor follow, whatever its shape; None: no rule."""
        self.info(name)
        return None

    def at_size(self, change: GeometryChange) -> Container:
        """Return the same checkpoint, to be written for the new size; raise if it cannot be."""
        del change
        return self

    @property
    def image_sizes(self) -> Mapping[str, Size]:
        """The image sizes that the file itself states, by the place where it states them."""
        return {}

    def with_configs(self, edited_files: Mapping[str, str], *, link: bool) -> Container:
        """Return the same checkpoint, to be written with new content for some files.

        With `link`, large files that do not change become hard links instead of copies.
        """
        del edited_files, link
        return self

    def span(self, name: str) -> tuple[int, int] | None:
        """Return the byte range of a tensor in the file; None: not contiguous, or not stored."""
        self.info(name)
        return None

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        return native(self.read(name)).tobytes()[start : start + count]

    def write_early(self, stage: Path, changes: Promised, metadata: Mapping[str, str]) -> Copied:
        """Like `write`, but a format may start copying before the new tensors are computed."""
        return self.write(stage, changes.wait(), metadata)

    def write_unchanged(self, stage: Path) -> Copied:
        """Write a copy in which nothing differs."""
        return self.write(stage, {}, {})

    def write_or_link(self, target: Path, *, link: bool) -> Copied:
        """Copy or hard-link an unchanged checkpoint into a new folder."""
        del link
        return self.write_unchanged(target)

    def write_into(
        self,
        folder: Path,
        changes: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str],
        *,
        link: bool,
    ) -> Copied:
        """Write the checkpoint into a new folder, under its current name."""
        target = folder / self.path.name
        if changes:
            return self.write(target, changes, metadata)
        return self.write_or_link(target, link=link)

    def check_with_reference(self) -> None:
        """Refuse a file that the reference implementation of its format would not read."""

    def info(self, name: str) -> TensorInfo:
        """Return one tensor's description; raise if there is no such tensor."""
        try:
            return self.tensors[name]
        except KeyError:
            raise TableError(f"{self.path.name}: has no tensor {name[:200]!r}.") from None

    def copied_except(self, changed: Collection[str]) -> Copied:
        """Count what a writer that changes these tensors copies."""
        kept = [info.nbytes for name, info in self.tensors.items() if name not in changed]
        return Copied(len(kept), sum(kept))

    def growth(self, shapes: Mapping[str, tuple[int, ...]], per_tensor: int = 0) -> int:
        """Return how many bytes tensors of these shapes add, if the old ones also stay."""
        new = (TensorInfo(name, shape, self.info(name).dtype) for name, shape in shapes.items())
        return sum(info.nbytes + per_tensor for info in new)


class FileContainer(Container):
    """A checkpoint that is one regular file."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def source(self) -> SourceFile:
            """The file that it is read from."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.source.path

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        span = self.span(name)
        if span is None:
            return Container.peek(self, name, start, count)
        begin, end = span
        count = max(0, min(count, end - begin - start))
        ahead = end - begin if end - begin <= _READ_WHOLE else BEGINNING
        if self.source.is_remote and start + count <= ahead:
            return self.source.read(begin, ahead)[start : start + count]
        return self.source.read(begin + start, count)

    def write_unchanged(self, stage: Path) -> Copied:
        """Copy the file as it is."""
        return self.write_or_link(stage, link=False)

    def write_or_link(self, target: Path, *, link: bool) -> Copied:
        """Copy or hard-link the unchanged file into a new folder."""
        from resize_pos.containers.io.link_or_copy import link_or_copy

        linked = link_or_copy(self.source, target, link=link)
        return self.copied_except(()) + Copied(0, 0, linked=int(linked))
