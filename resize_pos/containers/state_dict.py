"""Tensors in memory, seen as a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container, Copied
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES, TensorInfo, numpy_dtype

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_TORCH_DTYPES = {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
} | {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.numpy and dtype.bits > 8}
_TORCH_NAMES = {name: dtype for dtype, name in _TORCH_DTYPES.items()} | {
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True, eq=False)
class StateDict(Container):
    """A state dict. It can be read and planned, not written."""

    tensors: Mapping[str, TensorInfo]
    values: Callable[[str], NDArray[Any]] = field(repr=False)
    path: Path = Path("the state dict")  # in messages
    format: str = "state dict"
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, state_dict: Mapping[str, Any]) -> StateDict:
        """Describe what is a tensor; a step counter or a config is left out."""
        found = {name: describe(name, tensor) for name, tensor in state_dict.items()}
        infos = {name: info for name, info in found.items() if info is not None}
        return cls(infos, lambda name: to_numpy(state_dict[name], infos[name].dtype))

    def read(self, name: str) -> NDArray[Any]:
        """Return one tensor as an array in its stored dtype."""
        return self.values(self.info(name).name)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return how many bytes the tensors take if some get these shapes."""
        kept = (info.nbytes for name, info in self.tensors.items() if name not in shapes)
        return sum(kept) + self.growth(shapes)

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Refuse: tensors in memory belong to no file."""
        del changes, metadata
        raise ContainerError(f"{self.path}: is not a file, and cannot be written to {stage}.")


def describe(name: str, tensor: object) -> TensorInfo | None:
    """Describe a tensor; None for anything else."""
    dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    shape = getattr(tensor, "shape", None)
    return None if shape is None else TensorInfo(name, tuple(shape), _TORCH_DTYPES.get(dtype, "U8"))


def to_numpy(tensor: torch.Tensor, dtype: str) -> NDArray[Any]:
    """Return the values of a tensor, bit for bit."""
    import torch

    raw = tensor.detach().cpu().contiguous().reshape(-1)  # a single number has no axis to view
    return raw.view(torch.uint8).numpy().view(numpy_dtype(dtype)).reshape(tuple(tensor.shape))


def to_torch(array: NDArray[Any], dtype: str) -> torch.Tensor:
    """Return an array as a tensor of its own, bit for bit."""
    import numpy as np
    import torch

    kind = getattr(torch, _TORCH_NAMES[dtype])
    raw = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view("u1").copy()).view(kind)
    return raw.reshape(array.shape)
