"""Models that a checkpoint is loaded into: which one, how it is built, one forward pass.

Each library has a module of its own with a function `build`. torch and the libraries are imported
inside functions only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError, ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.request import Request
from resize_pos.verify.output_plan import image_size

if TYPE_CHECKING:
    import torch

# The word before the colon → the module that builds the model.
_LIBRARIES: Mapping[str, str] = {"timm": "timm", "hf": "transformers", "open_clip": "open_clip"}
_EXAMPLES = "timm:vit_base_patch16_224, hf:FOLDER or open_clip:ViT-B-16"

# Arguments that make a library load files, download, or run code from a file.
_LOADERS = frozenset(
    {
        "cache_dir",
        "checkpoint_path",
        "load_weights",
        "pretrained",
        "pretrained_cfg",
        "pretrained_cfg_overlay",
        "pretrained_image",
        "pretrained_image_path",
        "pretrained_text",
        "pretrained_text_path",
        "require_pretrained",
        "trust_remote_code",
        "weights_only",
    }
)
_SIZE_ARGUMENTS = ("img_size", "image_size", "force_image_size")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model to load a checkpoint into: `timm:NAME`, `hf:FOLDER` or `open_clip:NAME`."""

    name: str
    arguments: Mapping[str, Any]
    library: str = "timm"
    size: Size | None = None  # of the output, if an argument states it

    @classmethod
    def parse(cls, text: str, arguments: Sequence[str] = ()) -> ModelSpec:
        """Read `timm:vit_small_patch16_224` and `depth=4` …; values are Python literals."""
        library, _, name = text.partition(":")
        if library not in _LIBRARIES or not name:
            raise UsageError(
                f"--model {text!r} does not name a library and a model.",
                hint=f"for example --model {_EXAMPLES}",
            )
        given = dict(_argument(argument, library) for argument in arguments)
        size = None
        for key in _SIZE_ARGUMENTS:
            if key in given:
                size = Size.parse(given.pop(key), f"--model-arg {key}")
        return cls(name, given, library, size)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model with a checkpoint in it, at the checkpoint's size."""

    model: torch.nn.Module
    size: Size
    channels: int
    classes: int
    forward: Callable[[torch.Tensor], torch.Tensor]
    features: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]]  # and answers
    mean: Sequence[float]
    deviation: Sequence[float]


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What one forward pass gave."""

    model: str
    size: Size
    shape: tuple[int, ...]
    parameters: int


def load_strictly(
    container: Container, spec: ModelSpec, request: Request, *, own_config: bool = False
) -> Loaded:
    """Build the model for the checkpoint's size and load every tensor, none missing or left over.

    `request` states what is known of this checkpoint. With `own_config`, a folder's own config
    takes precedence over that of the spec.
    """
    size = spec.size
    if size is None:
        try:
            size = image_size(container, request)
        except GeometryError:
            if spec.library == "timm":  # the others may have a config that states it
                raise
    build = import_module(f"resize_pos.verify.{_LIBRARIES[spec.library]}").build
    loaded: Loaded = build(container, spec, size, own_config=own_config)
    return loaded


def forward_once(loaded: Loaded, name: str) -> ForwardPass:
    """Run one grey image through the model; raise if the result is not finite."""
    import torch

    with torch.no_grad():
        image = torch.zeros(1, loaded.channels, loaded.size.height, loaded.size.width)
        try:
            result = loaded.forward(image)
        except Exception as error:  # the model's own code
            raise ResizePosError(
                f"{name} does not run at {loaded.size} px: {type(error).__name__}: {error}"
            ) from error
    if not bool(torch.isfinite(result).all()):
        raise ResizePosError(f"{name} at {loaded.size} px gives values that are NaN or infinite.")
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    return ForwardPass(name, loaded.size, tuple(result.shape), count)


def _argument(text: str, library: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"--model-arg {text!r} is not KEY=VALUE.", hint="such as depth=4")
    if key in _LOADERS:
        raise UsageError(
            f"--model-arg {key} would make {library} load other files; it is not accepted.",
            hint="the weights are those of the checkpoint that is verified.",
        )
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def state_of(container: Container) -> dict[str, torch.Tensor]:
    """Read every tensor; floating ones become float32."""
    import numpy as np
    import torch

    state = {}
    for name in container.tensors:
        array = container.read(name)
        if array.dtype.kind not in "iub":
            array = array.astype(np.float32)  # torch cannot read numpy's bfloat16 and similar types
        state[name] = torch.from_numpy(np.ascontiguousarray(array).copy())
    return state


def refused(container: Container, spec: ModelSpec, size: Size, reason: str) -> ResizePosError:
    """Say that a checkpoint does not load into a model."""
    return ResizePosError(
        f"{container.path.name} does not load into {spec.name} at {size} px: {reason[:600]}",
        hint="pass constructor arguments that differ from the default with --model-arg.",
    )


def load_into(
    model: torch.nn.Module, container: Container, spec: ModelSpec, size: Size
) -> torch.nn.Module:
    """Load every tensor of a checkpoint into a model, strictly."""
    try:
        model.load_state_dict(state_of(container), strict=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise refused(container, spec, size, " ".join(lines)) from error
    return model.eval()
