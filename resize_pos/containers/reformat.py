"""A checkpoint seen as another file format: same tensors, streamed into a new file.

The view is made before anything is planned, so that the plan, the report and the checks all speak
of the names that the output has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from resize_pos.containers.base import Container, Copied, PartialReader
from resize_pos.containers.io.splice import PAGE, CopyRange, NewBytes, Segment, write_spliced
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.containers.safetensors.new_header import fresh_header
from resize_pos.core.errors import ContainerError, TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.torch.tree import Tree

SAFETENSORS, TORCH, NUMPY = "safetensors", "torch", "numpy"

# What the suffix of an output means.
FORMATS: Mapping[str, str] = {
    ".safetensors": SAFETENSORS,
    ".pt": TORCH,
    ".pth": TORCH,
    ".bin": TORCH,
    ".ckpt": TORCH,
    ".npz": NUMPY,
}

_PER_TENSOR = 512  # bytes of header that a tensor takes in either format
_MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a change of the file format did, for the report."""

    format: str
    dropped: tuple[str, ...] = ()  # entries that are no tensors of the model
    aliases: Mapping[str, str] = field(default_factory=dict)  # name → the name that stands for it
    wrapper: str | None = None  # the entry whose tensors were taken, without its name


@runtime_checkable
class _Ranges(Protocol):
    def span(self, name: str) -> tuple[int, int] | None:
        """Tell where in the file a tensor's bytes lie."""


@runtime_checkable
class _Pickled(Protocol):
    @property
    def tree(self) -> Tree:
        """What the pickle holds."""


@runtime_checkable
class _Numpy(Protocol):
    @property
    def opaque(self) -> tuple[str, ...]:
        """Members that are no numeric arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class Converted:
    """A container whose `write` makes a file of another format."""

    inner: Container
    tensors: Mapping[str, TensorInfo]
    conversion: Conversion
    _sources: Mapping[str, str] = field(repr=False)  # the names that the inner container knows

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

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        if name not in self._sources:
            raise TableError(f"{self.path.name}: has no tensor {name!r}.")
        return self.inner.read(self._sources[name])

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` bytes of a tensor, little-endian, from `start` bytes into it."""
        own = self._sources[name]
        if isinstance(self.inner, PartialReader):
            return self.inner.peek(own, start, count)
        return self.inner.read(own).tobytes()[start : start + count]

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Tell how large the file becomes when these tensors take these shapes: an upper bound."""
        infos = self._infos(shapes)
        names = sum(4 * len(name) + _PER_TENSOR for name in infos)
        return sum(info.nbytes for info in infos.values()) + names + 4 * PAGE

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Write the tensors to `stage` in the new format, one after the other."""
        infos = self._infos({name: tuple(array.shape) for name, array in changes.items()})
        notes = {**self.metadata, **self.conversion.aliases, **metadata}
        writers = {SAFETENSORS: self._write_safetensors, TORCH: self._write_torch}
        writers[self.conversion.format](stage, infos, changes, notes)
        untouched = [info.nbytes for name, info in self.tensors.items() if name not in changes]
        return Copied(len(untouched), sum(untouched))

    def _infos(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
        return {
            name: TensorInfo(name, shapes.get(name, info.shape), info.dtype)
            for name, info in self.tensors.items()
        }

    def _write_safetensors(
        self,
        stage: Path,
        infos: Mapping[str, TensorInfo],
        changes: Mapping[str, NDArray[Any]],
        notes: Mapping[str, str],
    ) -> None:
        # Wide elements first, so that each tensor is aligned without holes in between.
        order = sorted(infos, key=lambda name: -DTYPES[infos[name].dtype].bits)
        header = fresh_header(infos, order, notes)

        def segments() -> Iterator[Segment]:
            yield NewBytes(header)
            for name in order:
                yield self._content(name, changes)

        write_spliced(self.path, stage, segments())

    def _write_torch(
        self,
        stage: Path,
        infos: Mapping[str, TensorInfo],
        changes: Mapping[str, NDArray[Any]],
        notes: Mapping[str, str],
    ) -> None:
        from resize_pos.containers.torch.edit import TensorSpec
        from resize_pos.containers.torch.new_checkpoint import (
            ROOT,
            copied_record,
            fresh_pickle,
            write_checkpoint,
        )
        from resize_pos.containers.zip.layout import Fresh

        records = []
        for key, name in enumerate(infos):
            content, record = self._content(name, changes), f"{ROOT}data/{key}"
            if isinstance(content, CopyRange):
                place = (content.offset, content.length)
                records.append(copied_record(record, self.path, *place, None))
            else:
                records.append(Fresh.of(record, memoryview(content.data)))
        specs = [
            (name, TensorSpec(info.dtype, info.shape, str(key)))
            for key, (name, info) in enumerate(infos.items())
        ]
        write_checkpoint(self.path, stage, fresh_pickle(specs), records, notes)

    def _content(self, name: str, changes: Mapping[str, NDArray[Any]]) -> CopyRange | NewBytes:
        if name in changes:
            return NewBytes(_bytes(changes[name], self.tensors[name]))
        own = self._sources[name]
        span = self.inner.span(own) if isinstance(self.inner, _Ranges) else None
        if span is not None:
            return CopyRange(span[0], span[1] - span[0])
        return NewBytes(_bytes(self.inner.read(own), self.tensors[name]))


def converted(container: Container, output: Path | None, *, drop_extras: bool) -> Container:
    """See a container as the format that the output's suffix names, where that is another one."""
    wanted = FORMATS.get(output.suffix.lower()) if output is not None else None
    own = _format(container)
    if wanted is None or own is None or wanted == own:
        return container
    try:
        if wanted == NUMPY or (own, wanted) == (NUMPY, TORCH):
            raise ContainerError(
                f"a {own} file is not converted to a {wanted} one.",
                f"Name the output *{container.path.suffix} or *.safetensors.",
            )
        view = _view(container, wanted, drop_extras=drop_extras)
        _require_dtypes(view.tensors.values(), wanted)
    except ContainerError as fact:
        raise ContainerError(f"{container.path.name}: {fact.message}", fact.hint) from None
    return view


def _format(container: Container) -> str | None:
    """Name the format of one file of tensors; None for what is more than that."""
    if isinstance(container, SafetensorsFile):
        return SAFETENSORS
    if isinstance(container, _Pickled):
        return TORCH
    return NUMPY if isinstance(container, _Numpy) else None


def _view(container: Container, wanted: str, *, drop_extras: bool) -> Converted:
    if not isinstance(container, _Pickled):
        opaque = container.opaque if isinstance(container, _Numpy) else ()
        _require_leave(opaque, wanted, drop_extras)
        names = {name: name for name in container.tensors}
        return Converted(container, container.tensors, Conversion(wanted, opaque), names)
    tree = container.tree
    weights = [n for n in container.tensors if not n.startswith(_states(tree))]
    extras = _extras(tree)
    # Nobody expects the program of a TorchScript archive, or its flags, in a file of tensors.
    _require_leave(extras, wanted, drop_extras or container.format == "TorchScript archive")
    aliases = _aliases(tree, weights)
    prefix = f"{tree.wrapper}." if tree.wrapper else ""
    sources = {n.removeprefix(prefix): n for n in weights if n not in aliases}
    tensors = {
        name: TensorInfo(name, container.tensors[own].shape, container.tensors[own].dtype)
        for name, own in sources.items()
    }
    shown_aliases = {n.removeprefix(prefix): k.removeprefix(prefix) for n, k in aliases.items()}
    conversion = Conversion(wanted, tuple(extras), shown_aliases, tree.wrapper or None)
    return Converted(container, tensors, conversion, sources)


def _require_leave(extras: Sequence[str], wanted: str, drop_extras: bool) -> None:
    if extras and not drop_extras:
        shown = ", ".join(extras[:_MOST_LISTED]) + (" …" if len(extras) > _MOST_LISTED else "")
        raise ContainerError(
            f"holds what a {wanted} file cannot: {shown}.",
            "Pass --drop-extras to leave it out, or keep the format of the source.",
        )


def _states(tree: Tree) -> tuple[str, ...]:
    return tuple(f"{optimizer.state}." for optimizer in tree.optimizers)


def _extras(tree: Tree) -> list[str]:
    """List what is no tensor of a model; an optimizer is one entry."""
    optimizers = [optimizer.name or "the optimizer" for optimizer in tree.optimizers]
    inside = tuple(f"{name}." for name in optimizers)
    others = [name for name in tree.others if not name.startswith(inside)]
    return [*others, *optimizers]


def _aliases(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Find the names of one and the same view of a storage; the first in the alphabet stays."""
    groups: dict[object, list[str]] = {}
    for name in names:
        ref = tree.tensors[name]
        if ref.elements:
            view = (ref.storage.key, ref.offset, ref.shape, ref.stride, ref.dtype)
            groups.setdefault(view, []).append(name)
    kept = {name: min(group) for group in groups.values() for name in group}
    return {name: keep for name, keep in kept.items() if name != keep}


def _require_dtypes(infos: Iterable[TensorInfo], wanted: str) -> None:
    for info in infos:
        if wanted == SAFETENSORS and DTYPES[info.dtype].foreign:
            raise ContainerError(f"{info.name} is {info.dtype}, which safetensors does not have.")
        if wanted == TORCH:
            from resize_pos.containers.torch.dtypes import TORCH_NAME

            if info.dtype not in TORCH_NAME:
                raise ContainerError(f"{info.name} is {info.dtype}, which torch does not have.")


def _bytes(array: NDArray[Any], info: TensorInfo) -> memoryview:
    import numpy as np

    dtype = numpy_dtype(info.dtype)
    if array.dtype.newbyteorder("=") != dtype:
        raise TableError(f"{info.name}: stored as {info.dtype}, but written as {array.dtype}.")
    flat = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    if sys.byteorder == "big":
        flat = flat.byteswap()
    return flat.view(np.uint8).data
