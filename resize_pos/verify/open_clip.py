"""All use of open_clip: build a model that fits a checkpoint. Imported inside functions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError, ResizePosError, UsageError
from resize_pos.core.geometry import Size
from resize_pos.verify.models import Loaded, ModelSpec, load_into
from resize_pos.verify.timm import prepare_torchvision

if TYPE_CHECKING:
    import torch

_TEXT_TABLES = ("positional_embedding", "text.positional_embedding")
_CHANNELS = 3


def build(container: Container, spec: ModelSpec, size: Size | None, *, own_config: bool) -> Loaded:
    """Build the model for `size` and load every tensor strictly."""
    del own_config  # open_clip builds from a name
    if size is None:
        raise GeometryError(
            f"{container.path.name}: its image size is not known, and a model needs one.",
            hint="pass --to SIZE.",
        )
    if spec.name.startswith("hf-hub:"):
        raise UsageError(
            f"--model open_clip:{spec.name} would download a model.",
            hint="name one of open_clip's own configs, or local-dir:FOLDER.",
        )
    open_clip = _import()
    arguments = {"force_image_size": (size.height, size.width), **_length(container)}
    try:
        model = open_clip.create_model(
            spec.name,
            load_weights=False,
            pretrained_text=False,
            **{**arguments, **spec.arguments},
        )
    except Exception as error:  # the library raises various errors for a wrong name or argument
        raise ResizePosError(
            f"open_clip could not build {spec.name} for {size} px: {error}.",
            hint="check the name, and pass constructor arguments with --model-arg KEY=VALUE.",
        ) from error
    load_into(model, container, spec, size)

    def features(batch: torch.Tensor) -> tuple[torch.Tensor, None]:
        return model.encode_image(batch), None

    visual = model.visual
    mean = getattr(visual, "image_mean", None) or open_clip.OPENAI_DATASET_MEAN
    deviation = getattr(visual, "image_std", None) or open_clip.OPENAI_DATASET_STD
    return Loaded(model, size, _CHANNELS, 0, model.encode_image, features, mean, deviation)


def _import() -> Any:
    prepare_torchvision()
    try:
        import open_clip
    except (ImportError, RuntimeError) as error:
        raise ResizePosError(
            f"--model open_clip: needs open_clip: {error}.", hint="pip install open_clip_torch"
        ) from error
    return open_clip


def _length(container: Container) -> dict[str, int]:
    """State the length of the text tower, which may have been changed, too."""
    for name in _TEXT_TABLES:
        if name in container.tensors:
            return {"force_context_length": container.tensors[name].shape[0]}
    return {}
