"""Config keys of models whose input has other sides than an image: frames, and latents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resize_pos.configs.keys import FRAMED, PLACES, PROCESSOR_FILES, PROCESSOR_SECTIONS, KeyKind
from resize_pos.configs.model_types import model_type_of
from resize_pos.configs.read import NO_CONFIG, follow, stated
from resize_pos.configs.values import ConfigEdit, Transfer
from resize_pos.core.errors import GeometryError
from resize_pos.core.json_edit import Document

# Diffusion models of diffusers, by class: pixels of the image per latent, along each side. Their
# config states the side of the latents: diffusers models/transformers/*.py, models/unets/*.py.
LATENT_PIXELS: Mapping[str, int] = {
    "DiTTransformer2DModel": 8,
    "HunyuanDiT2DModel": 8,
    "PixArtTransformer2DModel": 8,
    "SanaTransformer2DModel": 32,
    "SD3Transformer2DModel": 8,
    "UNet2DConditionModel": 8,
}
# PixArt has three more embeddings at this sample_size, unless the config says which it has:
# diffusers models/transformers/pixart_transformer_2d.py:124-130.
_PIXART, _PIXART_LARGE = "PixArtTransformer2DModel", 128


def frame_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    """Set the number of frames in the model's config, and in a processor that samples them."""
    if transfer.frames is None and transfer.asked_frames is None:
        return
    found = [
        (path, value)
        for place in PLACES
        if place.kind is KeyKind.FRAMES
        for path, value in stated(place, documents)
    ]
    if transfer.frames is None:
        edits = list(_without_tables(documents.get("config.json", {}), found, transfer))
    else:
        edits = list(_with_tables(documents, found, *transfer.frames))
    yield from edits
    for edit in edits[:1]:
        yield from _sampled(documents, edit)


def _with_tables(
    documents: Mapping[str, Document],
    found: list[tuple[tuple[str, ...], object]],
    before: int,
    after: int,
) -> Iterator[ConfigEdit]:
    same = [path for path, value in found if value == before]
    if same or "config.json" not in documents:
        yield from (ConfigEdit("config.json", path, before, after) for path in same)
        return
    if found:
        path, value = found[0]
        raise GeometryError(
            f"config.json says {path[-1]} {value}, but the table has {before} frames.",
            hint=f"correct the config; or {NO_CONFIG}",
        )
    config = documents["config.json"]
    section: tuple[str, ...] = ("vision_config",) if "vision_config" in config else ()
    part = follow(config, section)
    if model_type_of(part) not in FRAMED:
        raise GeometryError(
            f"the frames change from {before} to {after}, and where config.json states them is "
            "not known.",
            hint=f"{NO_CONFIG[:-1]}, and edit the configs by hand.",
        )
    yield ConfigEdit("config.json", (*section, "num_frames"), None, after)


def _without_tables(
    config: Document, found: list[tuple[tuple[str, ...], object]], transfer: Transfer
) -> Iterator[ConfigEdit]:
    """Set the frames of a model that stores no table over time: its library computes one."""
    after = transfer.asked_frames
    assert after is not None
    for path, before in found:
        tube = follow(config, (*path[:-1], "tubelet_size"))
        tube = tube[0] if isinstance(tube, list) and tube else tube
        if type(tube) is int and tube > 0 and after % tube:
            below, above = max(after // tube, 1) * tube, -(-after // tube) * tube
            raise GeometryError(
                f"--to-frames {after} is not a multiple of tubelet_size {tube}, which config.json "
                "states.",
                hint=f"the nearest are {below} and {above}.",
            )
        yield ConfigEdit("config.json", path, before, after)
    if config and not found:
        raise GeometryError(
            f"--to-frames {after}: no table has a time axis, and where config.json states the "
            "frames is not known.",
            hint=f"{NO_CONFIG[:-1]}, and edit the configs by hand.",
        )


def _sampled(documents: Mapping[str, Document], model: ConfigEdit) -> Iterator[ConfigEdit]:
    """Let a processor that samples as many frames as the model sees sample the new number."""
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS:
            path = (*section, "num_frames")
            value = follow(documents.get(file, {}), path)
            if value is not None and value == model.before:
                yield ConfigEdit(file, path, value, model.after)


def latent_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    """Set the side of the latents in a config of diffusers; it builds its tables from that."""
    config, size = documents.get("config.json", {}), transfer.asked
    kind = config.get("_class_name")
    pixels = LATENT_PIXELS.get(kind) if isinstance(kind, str) else None
    before = config.get("sample_size")
    if pixels is None or size is None or type(before) is not int:
        return
    patch = config.get("patch_size")
    whole = pixels * patch if type(patch) is int and patch > 0 else pixels
    if size.height != size.width or size.height % whole:
        below, above = max(size.height // whole, 1) * whole, -(-size.height // whole) * whole
        near = f"{below} px" if below == above else f"{below} px and {above} px"
        raise GeometryError(
            f"sample_size is one number in a config of {kind}: a square image whose side is a "
            f"multiple of {whole} px ({pixels} px per latent). {size} px is not.",
            hint=f"the nearest are {near}; or {NO_CONFIG}",
        )
    after, most = size.height // pixels, config.get("pos_embed_max_size")
    if type(most) is int and size.height // whole > most:
        raise GeometryError(
            f"{size} px are {size.height // whole} cells per side, and pos_embed_max_size in "
            f"config.json is {most}: the model crops its grid of that size.",
            hint=f"the largest size that it can run is {most * whole} px.",
        )
    yield ConfigEdit("config.json", ("sample_size",), before, after)
    large = {before == _PIXART_LARGE, after == _PIXART_LARGE}
    if kind == _PIXART and len(large) > 1 and config.get("use_additional_conditions") is None:
        path = ("use_additional_conditions",)
        yield ConfigEdit("config.json", path, None, before == _PIXART_LARGE)
