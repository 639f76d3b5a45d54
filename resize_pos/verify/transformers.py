"""All use of transformers: build the model that a config describes, and load a checkpoint into it.

The library is imported inside functions only. No code from the folder is executed: a config that
asks for code of its own is refused by the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.configs.read import ConfigFiles
from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError, ResizePosError, UsageError
from resize_pos.core.geometry import Size
from resize_pos.verify.models import Loaded, ModelSpec, refused, state_of
from resize_pos.verify.timm import prepare_torchvision

if TYPE_CHECKING:
    import torch

_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"
_KINDS_OF_KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")
_RESULTS = ("logits", "pooler_output", "image_embeds", "last_hidden_state", "predicted_depth")
_GREY = (0.5, 0.5, 0.5)


def build(container: Container, spec: ModelSpec, size: Size | None, *, own_config: bool) -> Loaded:
    """Build the model of a config for `size` and load every tensor strictly."""
    transformers = _import()
    folder = _folder(container, spec, own_config=own_config)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the library raises various errors for a config it cannot use
        raise ResizePosError(f"{folder}: transformers cannot read its config: {error}") from error
    size = _with_size(config, size)
    for key, value in spec.arguments.items():
        if not hasattr(config, key):
            raise UsageError(f"--model-arg {key}: the config of {folder} has no such key.")
        setattr(config, key, value)
    model = _load(transformers, config, container, spec, size)
    mean, deviation = _normalisation(folder)
    return Loaded(
        model,
        size,
        int(next(_values(config, "num_channels"), 3)),
        _classes(config),
        lambda batch: _main(_call(model, batch)),
        lambda batch: _features(model, batch),
        mean,
        deviation,
    )


def _import() -> Any:
    prepare_torchvision()
    try:
        import transformers
    except (ImportError, RuntimeError) as error:
        raise ResizePosError(
            f"--model hf: needs transformers: {error}.", hint="pip install transformers"
        ) from error
    return transformers


def _folder(container: Container, spec: ModelSpec, *, own_config: bool) -> Path:
    if own_config and (container.path / _CONFIG).is_file():
        return container.path
    folder = Path(spec.name)
    if not (folder / _CONFIG).is_file():
        raise UsageError(
            f"--model hf:{spec.name}: there is no {_CONFIG} in this folder.",
            hint="name a model folder on this disk.",
        )
    return folder


def _configs(config: Any) -> Iterator[Any]:
    """Give a config and those inside it: of the vision tower, of the encoder …"""
    yield config
    for value in vars(config).values():
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            yield from _configs(value)


def _values(config: Any, key: str) -> Iterator[Any]:
    for part in _configs(config):
        value = getattr(part, key, None)
        if value is not None:
            yield value


def _with_size(config: Any, size: Size | None) -> Size:
    """State the size in the config; without one, return what the config states."""
    if size is None:
        stated = next(_values(config, "image_size"), None)
        if stated is None:
            raise GeometryError(
                "neither the checkpoint nor the config states an image size.",
                hint="pass --to SIZE.",
            )
        return Size.parse(tuple(stated) if isinstance(stated, list) else stated, "image_size")
    for part in _configs(config):
        stated = getattr(part, "image_size", None)
        if stated is not None:
            square = isinstance(stated, int) and size.height == size.width
            part.image_size = size.height if square else [size.height, size.width]
    return size


def _load(
    transformers: Any, config: Any, container: Container, spec: ModelSpec, size: Size
) -> torch.nn.Module:
    name = next(iter(getattr(config, "architectures", None) or ()), None)
    kind: Any = None if name is None else getattr(transformers, name, None)
    if name is None:
        kind = type(transformers.AutoModel.from_config(config))
    if kind is None:
        raise ResizePosError(f"transformers has no model {name}, which the config names.")
    try:
        model, found = kind.from_pretrained(
            None, config=config, state_dict=state_of(container), output_loading_info=True
        )
    except Exception as error:  # a size mismatch, or the model's own code
        raise refused(container, spec, size, f"{type(error).__name__}: {error}") from error
    problems = [
        f"{key.replace('_', ' ')}: {', '.join(map(str, sorted(found[key])))}"
        for key in _KINDS_OF_KEYS
        if found.get(key)
    ]
    if problems:
        raise refused(container, spec, size, "; ".join(problems))
    loaded: torch.nn.Module = model.eval()
    return loaded


def _classes(config: Any) -> int:
    names = " ".join(getattr(config, "architectures", None) or ())
    return int(config.num_labels) if "ImageClassification" in names else 0


def _normalisation(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    document = ConfigFiles(folder).documents((_PROCESSOR,)).get(_PROCESSOR, {})
    mean, deviation = (document.get(key) or _GREY for key in ("image_mean", "image_std"))
    return tuple(mean), tuple(deviation)


def _call(model: Any, batch: torch.Tensor, **more: Any) -> Any:
    """Run the image side of a model."""
    if hasattr(model, "get_image_features"):
        return model.get_image_features(pixel_values=batch)
    return model(pixel_values=batch, **more)


def _main(result: Any) -> torch.Tensor:
    """Return the tensor that a result is about."""
    import torch

    if isinstance(result, torch.Tensor):
        return result
    for name in _RESULTS:
        value = getattr(result, name, None)
        if isinstance(value, torch.Tensor):
            return value
    found = result.values() if hasattr(result, "values") else result
    value = next((part for part in found if isinstance(part, torch.Tensor)), None)
    if value is None:
        raise ResizePosError("the model returns no tensor that could be compared.")
    return value


def _features(model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return features that do not depend on the number of patches, and the classes' scores."""
    result = _call(model, batch, output_hidden_states=True)
    hidden = getattr(result, "hidden_states", None)
    last = hidden[-1] if hidden else _main(result)
    pooled = (
        last.flatten(2).mean(-1) if last.ndim == 4 else last.mean(1) if last.ndim == 3 else last
    )
    scores = getattr(result, "logits", None)
    return pooled, scores if scores is not None and scores.ndim == 2 else None
