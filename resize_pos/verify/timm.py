"""All use of timm: import it, and build a model that fits a checkpoint.

torch and timm are imported inside functions only, and nowhere else in the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container
from resize_pos.core.errors import ResizePosError
from resize_pos.core.geometry import Size
from resize_pos.verify.models import Loaded, ModelSpec, load_into

if TYPE_CHECKING:
    import torch

_OPERATORS = ("torchvision::nms", "torchvision::qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_HEADS = ("head.weight", "head.fc.weight", "classifier.weight")
_STEMS = ("patch_embed.proj.weight", "patch_embed.projection.weight", "stem.conv1.weight")


def prepare_torchvision() -> None:
    """Let torchvision be imported even if its compiled operators do not fit the torch here.

    torchvision registers fake kernels for two operators at import. If its binary does not match
    torch, the operators are unknown and the import fails. So their schemas are declared here. We
    never call these operators.
    """
    try:
        import torch
    except ImportError as error:
        raise ResizePosError(f"--model needs torch: {error}.") from error
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass  # the import of the library that needs it reports it
    except RuntimeError:
        for name in _OPERATORS:
            with suppress(RuntimeError):  # it is already declared
                torch.library.define(name, _SCHEMA)


def import_timm() -> Any:
    """Import timm, which imports torchvision."""
    prepare_torchvision()
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise ResizePosError(f"--model needs timm: {error}.", hint="pip install timm") from error
    return timm


def build(container: Container, spec: ModelSpec, size: Size | None, *, own_config: bool) -> Loaded:
    """Build the model for `size` and load every tensor strictly."""
    del own_config  # timm builds from a name, not from a config
    assert size is not None
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
    load_into(model, container, spec, size)

    def features(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = model.forward_features(batch)
        return model.forward_head(tokens, pre_logits=True), model.forward_head(tokens)

    config: Mapping[str, Any] = timm.data.resolve_model_data_config(model)
    return Loaded(
        model,
        size,
        arguments.get("in_chans", 3),
        int(arguments["num_classes"]),
        model,
        features,
        config["mean"],
        config["std"],
    )


def _width(container: Container, names: Sequence[str], axis: int) -> int | None:
    for name in names:
        if name in container.tensors and len(container.tensors[name].shape) > axis:
            return container.tensors[name].shape[axis]
    return None
