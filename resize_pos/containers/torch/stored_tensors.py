"""What all torch formats share: tensors that are views of storages in one file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resize_pos.containers.arrays import array_type, most_expanded, native, read_array, strided
from resize_pos.containers.base import FileContainer, OptimizerState
from resize_pos.containers.torch.tensors import TensorRef
from resize_pos.core.errors import ContainerError, TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from resize_pos.containers.reformat import Exported
    from resize_pos.containers.torch.tree import Tree

# Views may repeat elements (stride 0) or overlap: what all may take in a new file where each is
# written by itself.
_MOST_WRITTEN, _MOST_RATIO = 64 << 20, 40  # bytes, and times the size of the file


class TorchContainer(FileContainer):
    """A torch file whose pickle has been walked; nothing in it was executed."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def tree(self) -> Tree:
            """What the pickle holds."""

    @abstractmethod
    def storage_offset(self, ref: TensorRef) -> int:
        """Return at which byte of the file a tensor's storage begins."""
        raise NotImplementedError

    @property
    def optimizers(self) -> tuple[OptimizerState, ...]:
        """Every optimizer state dict in it."""
        return self.tree.optimizers

    @property
    def wrapper(self) -> str | None:
        """The entry that holds the weights; empty: the file itself; None: several entries do."""
        return self.tree.wrapper

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers of a config or of arguments that were saved with the weights."""
        return {name: setting.value for name, setting in self.tree.settings.items()}

    @property
    def fixed_settings(self) -> Mapping[str, str]:
        """The settings that cannot be changed, and why."""
        return {name: setting.fixed for name, setting in self.tree.settings.items()}

    def ref(self, name: str) -> TensorRef:
        """Return where and how a tensor is stored."""
        return self.tree.tensors[self.info(name).name]

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype, contiguous or not; no other data is read."""
        import numpy as np

        ref, info, where = self.ref(name), self.info(name), self.path.name
        dtype = array_type(info, where)
        if ref.lazy:
            raise TableError(f"{where}: {name}: is stored conjugated or negated.")
        if len(ref.shape) > 64 or info.nbytes > max(
            ref.storage.nbytes, most_expanded(self.source.size)
        ):
            raise TableError(
                f"{where}: {name}: {list(ref.shape)} is too large to read: its {info.nbytes} bytes "
                f"are a view of {ref.storage.nbytes}, in a file of {self.source.size}."
            )
        if ref.elements == 0:
            return np.empty(ref.shape, dtype)
        offset = self.storage_offset(ref) + ref.offset * dtype.itemsize
        if ref.is_contiguous:
            return read_array(self.source, info, offset)
        reach = 1 + sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True))
        buffer = np.empty(reach, dtype)
        self.source.read_into(offset, buffer.view(np.uint8).data)
        return strided(native(buffer), ref.shape, ref.stride)

    def span(self, name: str) -> tuple[int, int] | None:
        """Return the byte range of a tensor in the file; None: its elements are not contiguous."""
        ref, info = self.ref(name), self.info(name)
        if ref.lazy or not ref.is_contiguous:
            return None
        step = info.nbytes // max(ref.elements, 1)
        start = self.storage_offset(ref) + ref.offset * step
        return start, start + info.nbytes

    def exported(self) -> Exported:
        """Say which tensors of the model can be written in another format, and what cannot.

        If one mapping holds all weights, its key is dropped from the names of its tensors. If one
        view of a storage has several names, only the alphabetically first is written.
        """
        return self._export(self._weights(), self.tree.wrapper)

    def selected(self, entry: str) -> Exported:
        """Say which tensors one of several entries has, such as model or model_ema."""
        return self._export([n for n in self._weights() if n.startswith(f"{entry}.")], entry)

    def _weights(self) -> list[str]:
        states = tuple(f"{optimizer.state}." for optimizer in self.tree.optimizers)
        return [name for name in self.tensors if not name.startswith(states)]

    def _export(self, weights: Sequence[str], wrapper: str | None) -> Exported:
        from resize_pos.containers.reformat import Exported

        aliases = _aliases(self.tree, weights)
        written = sum(self.info(name).nbytes for name in weights if name not in aliases)
        if written > _MOST_WRITTEN + _MOST_RATIO * self.source.size:
            raise ContainerError(
                f"{self.path.name}: its tensors are views that share bytes: written one by one "
                f"they would take {written} bytes, and the file has {self.source.size}.",
                hint="keep the suffix of the source: the new file then shares the bytes, too.",
            )
        prefix = f"{wrapper}." if wrapper else ""
        return Exported(
            self.source,
            "torch",
            {n.removeprefix(prefix): n for n in weights if n not in aliases},
            extras=tuple(_extras(self.tree)),
            aliases={n.removeprefix(prefix): k.removeprefix(prefix) for n, k in aliases.items()},
            wrapper=wrapper or None,
        )


def _extras(tree: Tree) -> list[str]:
    """List what is not a tensor of a model; an optimizer counts as one entry."""
    optimizers = [optimizer.name or "the optimizer" for optimizer in tree.optimizers]
    inside = tuple(f"{name}." for name in optimizers)
    others = [name for name in tree.others if not name.startswith(inside)]
    return [*others, *optimizers]


def _aliases(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Map every further name of the same view of a storage to the name that is written."""
    groups: dict[object, list[str]] = {}
    for name in names:
        ref = tree.tensors[name]
        if ref.elements:
            view = (ref.storage.key, ref.offset, ref.shape, ref.stride, ref.dtype)
            groups.setdefault(view, []).append(name)
    kept = {name: min(group) for group in groups.values() for name in group}
    return {name: keep for name, keep in kept.items() if name != keep}
