"""All use of timm: import it, build a model that fits a checkpoint, load it strictly.

torch and timm are imported inside functions only, and nowhere else in the package.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container
from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size

if TYPE_CHECKING:
    import torch

_OPERATORS = ("torchvision::nms", "torchvision::qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_HEADS = ("head.weight", "head.fc.weight", "classifier.weight")
# These arguments of timm.create_model load files or download.
_LOADERS = frozenset(
    {"checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}
)
_STEMS = ("patch_embed.proj.weight", "patch_embed.projection.weight", "stem.conv1.weight")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model to load a checkpoint into: `timm:NAME`, with constructor arguments."""

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, arguments: Sequence[str] = ()) -> ModelSpec:
        """Read `timm:vit_small_patch16_224` and `depth=4` …; values are Python literals."""
        library, colon, name = text.partition(":")
        if library != "timm" or not colon or not name:
            raise UsageError(
                f"--model {text!r} is not timm:NAME.",
                hint="for example --model timm:vit_base_patch16_224",
            )
        return cls(name, dict(_argument(argument) for argument in arguments))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with a checkpoint in it, at the checkpoint's size."""

    model: torch.nn.Module
    size: Size
    channels: int
    classes: int


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What one forward pass gave."""

    model: str
    size: Size
    shape: tuple[int, ...]
    parameters: int


def import_timm() -> Any:
    """Import timm, also beside a torchvision whose compiled operators do not fit the torch here.

    timm imports torchvision, which registers fake kernels for two operators at import. If its
    binary does not match torch, the operators are unknown and the import fails. So their schemas
    are declared here. We never call these operators.
    """
    try:
        import torch
    except ImportError as error:
        raise ResizePosError(f"--model needs torch: {error}.") from error
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass  # the import of timm below reports it
    except RuntimeError:
        for name in _OPERATORS:
            with suppress(RuntimeError):  # it is already declared
                torch.library.define(name, _SCHEMA)
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise ResizePosError(f"--model needs timm: {error}.", hint="pip install timm") from error
    return timm


def load_strictly(container: Container, spec: ModelSpec, size: Size) -> Loaded:
    """Build the model for `size` and load every tensor, with none missing and none left over."""
    timm = import_timm()
    classes, channels = _width(container, _HEADS, 0), _width(container, _STEMS, 1)
    arguments: dict[str, Any] = {
        "pretrained": False,
        "img_size": (size.height, size.width),
        "num_classes": 0 if classes is None else classes,
    }
    if channels is not None:
        arguments["in_chans"] = channels
    arguments |= spec.arguments
    try:
        model = timm.create_model(spec.name, **arguments)
    except Exception as error:  # timm raises various errors for a wrong name or argument
        raise ResizePosError(
            f"timm could not build {spec.name} for {size} px: {error}.",
            hint="check the name, and pass constructor arguments with --model-arg KEY=VALUE.",
        ) from error
    try:
        model.load_state_dict(_state(container), strict=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise ResizePosError(
            f"{container.path.name} does not load into {spec.name} at {size} px: "
            f"{' '.join(lines)[:600]}",
            hint="pass constructor arguments that differ from the default with --model-arg.",
        ) from error
    return Loaded(model.eval(), size, arguments.get("in_chans", 3), int(arguments["num_classes"]))


def forward_once(loaded: Loaded, name: str) -> ForwardPass:
    """Run one grey image through the model; raise if the result is not finite."""
    import torch

    with torch.no_grad():
        image = torch.zeros(1, loaded.channels, loaded.size.height, loaded.size.width)
        result = loaded.model(image)
    if not bool(torch.isfinite(result).all()):
        raise ResizePosError(f"{name} at {loaded.size} px gives values that are NaN or infinite.")
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    return ForwardPass(name, loaded.size, tuple(result.shape), count)


def _argument(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"--model-arg {text!r} is not KEY=VALUE.", hint="such as depth=4")
    if key in _LOADERS:
        raise UsageError(
            f"--model-arg {key} would make timm load other weights; it is not accepted.",
            hint="the weights are those of the checkpoint that is verified.",
        )
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _width(container: Container, names: Sequence[str], axis: int) -> int | None:
    for name in names:
        if name in container.tensors and len(container.tensors[name].shape) > axis:
            return container.tensors[name].shape[axis]
    return None


def _state(container: Container) -> dict[str, torch.Tensor]:
    import numpy as np
    import torch

    state = {}
    for name in container.tensors:
        array = container.read(name)
        if array.dtype.kind not in "iub":
            array = array.astype(np.float32)  # torch cannot read numpy's bfloat16 and similar types
        state[name] = torch.from_numpy(np.ascontiguousarray(array).copy())
    return state
