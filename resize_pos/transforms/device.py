"""The same matrices on a GPU, for `--device`. torch is imported only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.conventions import Resampling
from resize_pos.core.devices import check_device
from resize_pos.core.errors import ResizePosError
from resize_pos.core.geometry import Grid
from resize_pos.transforms.kernels import operator

if TYPE_CHECKING:
    import torch


def available_devices() -> list[str]:
    """Name the devices that this installation of torch can use."""
    import torch

    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def resolve_device(text: str) -> torch.device:
    """Turn a device name into torch's own, or say which devices there are."""
    check_device(text)
    import torch

    device = torch.device(text)
    present = available_devices()
    wanted = "cuda:0" if text == "cuda" else str(device)
    if wanted not in present:
        raise ResizePosError(
            f"device {text} is not available; torch {torch.__version__} sees {', '.join(present)}.",
            hint="leave --device out: the CPU takes a fraction of a second for a usual table.",
        )
    return device


def resize_grid_on(
    grid: NDArray[np.float64], target: Grid, resampling: Resampling, device: torch.device
) -> NDArray[np.float64]:
    """Resample a (copies, h, w, d) grid with dense matrices on a torch device."""
    import torch

    precision = precision_of(device)
    height = operator(grid.shape[1], target.height, resampling).matrix
    width = operator(grid.shape[2], target.width, resampling).matrix
    try:
        # The copies are writeable, which torch wants of memory that it shares.
        rows, columns, cells = (
            torch.from_numpy(np.array(array)).to(device=device, dtype=precision)
            for array in (height, width, grid)
        )
        resized = torch.einsum("ih,chwd->ciwd", rows, cells)
        resized = torch.einsum("jw,ciwd->cijd", columns, resized)
        return resized.to(device="cpu", dtype=torch.float64).contiguous().numpy()
    except torch.cuda.OutOfMemoryError as error:
        raise ResizePosError(
            f"device {device} has too little free memory to resize a grid of shape "
            f"{list(grid.shape)} to {target}.",
            hint="leave --device out to do it on the CPU.",
        ) from error


def precision_of(device: torch.device) -> torch.dtype:
    """Return the widest dtype that a device computes in."""
    import torch

    # Metal has no float64; float32 is still what the libraries themselves use.
    return torch.float32 if device.type == "mps" else torch.float64
