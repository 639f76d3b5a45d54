"""A checkpoint seen as another file format: same tensors, copied into a new file.

The view is made before planning, so that the plan, the report and the checks use the names of the
output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import stored_bytes
from resize_pos.containers.base import Container, Copied
from resize_pos.containers.detect import FORMATS, SAFETENSORS_SUFFIX, format_of, imported
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.containers.io.splice import PAGE, CopyRange, NewBytes
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.notes import Note
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

# numpy archives hold JAX models; the torch versions of these have other names and axes.
_NOT_OFFERED = {("numpy", "torch")}

_PER_TENSOR = 512  # bytes of header that a tensor takes in any format
_MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class Exported:
    """What of a file can be written in another format."""

    source: SourceFile
    format: str  # the name of its own format
    names: Mapping[str, str]  # name in the output → its own name
    extras: tuple[str, ...] = ()  # entries that are not tensors of the model
    aliases: Mapping[str, str] = field(default_factory=dict)  # name → the name that is written
    wrapper: str | None = None  # the entry whose tensors are written, without its name
    asks_for_extras: bool = True  # whether leaving the extras out needs --drop-extras


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a change of the file format did, for the report."""

    format: str
    dropped: tuple[str, ...] = ()  # entries that are not tensors of the model
    aliases: Mapping[str, str] = field(default_factory=dict)  # name → the name that stands for it
    wrapper: str | None = None  # the entry whose tensors were taken, without its name


@dataclass(frozen=True, slots=True, eq=False)
class Converted(Container):
    """A container whose `write` makes a file of another format."""

    inner: Container
    tensors: Mapping[str, TensorInfo]
    done: Conversion
    _source: SourceFile = field(repr=False)
    _names: Mapping[str, str] = field(repr=False)  # the names that the inner container has
    _writer: str = field(repr=False)

    @property
    def path(self) -> Path:
        """Where the source lies."""
        return self.inner.path

    @property
    def format(self) -> str:
        """What kind of file the source is, in words for a person."""
        return self.inner.format

    @property
    def metadata(self) -> Mapping[str, str]:
        """Free-form strings kept in the source."""
        return self.inner.metadata

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a user should know about the file that is written."""
        return self.inner.notes

    @property
    def conversion(self) -> Conversion:
        """What the change of the file format does."""
        return self.done

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        return self.inner.read(self._names[self.info(name).name])

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        return self.inner.peek(self._names[self.info(name).name], start, count)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return an upper bound of the file size if these tensors get these shapes."""
        infos = self._infos(shapes)
        names = sum(4 * len(name) + _PER_TENSOR for name in infos)
        return sum(info.nbytes for info in infos.values()) + names + 4 * PAGE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write the tensors to `stage` in the new format, one after the other."""
        infos = self._infos({name: tuple(array.shape) for name, array in changes.items()})
        notes = {**self.metadata, **self.done.aliases, **metadata}

        def content(name: str) -> CopyRange | NewBytes:
            if name in changes:
                return NewBytes(stored_bytes(changes[name], self.tensors[name], self.path.name))
            span = self.inner.span(self._names[name])
            if span is not None:
                return CopyRange(span[0], span[1] - span[0])
            array = self.inner.read(self._names[name])
            return NewBytes(stored_bytes(array, self.tensors[name], self.path.name))

        imported(f"{self._writer}:write_tensors")(self._source, stage, infos, content, notes)
        return self.copied_except(changes)

    def _infos(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
        return {
            name: TensorInfo(name, shapes.get(name, info.shape), info.dtype)
            for name, info in self.tensors.items()
        }


def converted(
    container: Container, output: Path | None, *, drop_extras: bool, select: str | None = None
) -> Container:
    """View a container as the format of the output's suffix, if it differs from the source's.

    With `select`, only the tensors of this entry are written, to a new file of either format.
    """
    wanted = None
    if output is not None and not container.is_folder:
        wanted = format_of(output, container.path)
    own = _exported(container, select) if select or wanted is not None else None
    if own is None or (wanted is not None and wanted.name == own.format and select is None):
        return container
    if wanted is None:
        wanted = next(row for row in FORMATS if row.name == own.format and row.suffixes)
    try:
        if wanted.writer is None or (own.format, wanted.name) in _NOT_OFFERED:
            names = dict.fromkeys((container.path.suffix, SAFETENSORS_SUFFIX))
            raise ContainerError(
                f"the {own.format} format is not converted to {wanted.name}.",
                f"Name the output {' or '.join(f'*{suffix}' for suffix in names)}.",
            )
        if select is None:
            _require_leave(own, wanted.name, drop_extras=drop_extras)
        tensors = {
            name: TensorInfo(name, container.tensors[inner].shape, container.tensors[inner].dtype)
            for name, inner in own.names.items()
        }
        imported(f"{wanted.writer}:require_dtypes")(tensors.values())
    except ContainerError as fact:
        raise ContainerError(f"{container.path.name}: {fact.message}", fact.hint) from None
    left = own.extras if select is None else _others(container, select)
    done = Conversion(wanted.name, left, own.aliases, own.wrapper)
    return Converted(container, tensors, done, own.source, own.names, wanted.writer)


def _exported(container: Container, select: str | None) -> Exported | None:
    if select is None:
        return container.exported()
    own = container.selected(select)
    if own is not None and own.names:
        return own
    raise ContainerError(
        f"{container.path.name}: --select {select}: it has no tensors below this name.",
        hint=f"its entries are {', '.join(_entries(container)[:_MOST_LISTED])}.",
    )


def _entries(container: Container) -> list[str]:
    """Return the first part of the name of every tensor."""
    return list(dict.fromkeys(name.partition(".")[0] for name in container.tensors))


def _others(container: Container, select: str) -> tuple[str, ...]:
    """Return the other entries of a checkpoint: further copies, optimizers, settings."""
    own = container.exported()
    names = [*_entries(container), *(own.extras if own is not None else ())]
    others = (name.partition(".")[0] for name in names)
    return tuple(dict.fromkeys(o for o in others if o != select.partition(".")[0]))


def _require_leave(own: Exported, wanted: str, *, drop_extras: bool) -> None:
    extras: Sequence[str] = own.extras if own.asks_for_extras else ()
    if extras and not drop_extras:
        shown = ", ".join(extras[:_MOST_LISTED]) + (" …" if len(extras) > _MOST_LISTED else "")
        raise ContainerError(
            f"holds what a {wanted} file cannot: {shown}.",
            "Pass --drop-extras to leave it out, or keep the format of the source.",
        )
