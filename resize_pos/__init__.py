"""Transfer a model checkpoint to another input resolution.

The names below are imported on first use, so that `import resize_pos` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from resize_pos._version import __version__
from resize_pos.core.errors import ResizePosError

if TYPE_CHECKING:
    from resize_pos.api import (
        compare_checkpoints,
        fit_checkpoint,
        inspect_checkpoint,
        param_groups,
        resize_checkpoint,
        resize_state_dict,
        resize_table,
        verify_checkpoint,
    )

__all__ = [
    "ResizePosError",
    "__version__",
    "compare_checkpoints",
    "fit_checkpoint",
    "inspect_checkpoint",
    "param_groups",
    "resize_checkpoint",
    "resize_state_dict",
    "resize_table",
    "verify_checkpoint",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("resize_pos.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
