"""Plan the edits of the config files beside the weights: documents in, edits out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from resize_pos.configs.frames_and_latents import frame_edits, latent_edits
from resize_pos.configs.keys import (
    PLACES,
    RESOLUTION_KEYS,
    TWO_SIDES,
    ConfigPlace,
    KeyKind,
    Library,
)
from resize_pos.configs.model_types import model_type_of
from resize_pos.configs.processors import plan_processor_edits, processor_size
from resize_pos.configs.read import NO_CONFIG, as_size, follow, library_of, stated
from resize_pos.configs.square_only import square_only
from resize_pos.configs.values import ConfigEdit, Transfer, as_pixels, new_value
from resize_pos.configs.vision_language import (
    Tokens,
    models_in,
    pooling_of,
    require_runnable,
    tokens_of,
)
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, grid_of
from resize_pos.core.json_edit import Document, replace_value


def plan_config_edits(
    documents: Mapping[str, Document], transfer: Transfer
) -> tuple[ConfigEdit, ...]:
    """List every value that must change so that the new weights load and get the right input."""
    transfer = complete(documents, transfer)
    edits = [
        *_image_edits(documents, transfer),
        *_length_edits(documents, transfer),
        *_window_edits(documents, transfer),
        *frame_edits(documents, transfer),
        *latent_edits(documents, transfer),
        *plan_processor_edits(documents, transfer),
    ]
    return tuple(edit for edit in edits if edit.before != edit.after)


def complete(documents: Mapping[str, Document], transfer: Transfer) -> Transfer:
    """Add what only configs state: the old size as they write it, and the image tokens."""
    config = documents.get("config.json", {})
    if transfer.to_grid is None and transfer.asked is not None:
        transfer = _sized_by_processor(documents, transfer)
        if transfer.to_grid is None and transfer.free and pooling_of(config) is not None:
            # The image size in the config of a language model may be a limit.
            transfer = replace(transfer, to_size=None)
    found = [(item.path, as_size(item.value)) for item in _found(documents, {KeyKind.SIZE})]
    if transfer.from_size is None and transfer.to_size is not None:
        transfer = replace(transfer, from_size=next((s for _, s in found if s), None))
    named = [(path, size) for path, size in found if transfer.states(size)]
    if named:
        inside = any("high_res_vision_config" not in path for path, _ in named)
        transfer = replace(transfer, stated=named[0][1], counts=inside)
    old, new, size = transfer.from_grid, transfer.to_grid, transfer.to_size
    if old is None or new is None or size is None or not config or not transfer.counts:
        return transfer
    cell = transfer.cell or Size(size.height // new.height, size.width // new.width)
    require_runnable(config, new, cell)
    pooling = pooling_of(config)
    if pooling is not None and pooling[0].tokens is Tokens.FIXED:
        return replace(transfer, counts=False)
    before, after = tokens_of(config, old), tokens_of(config, new)
    if before is None or after is None:
        return transfer
    return replace(transfer, tokens=(before, after))


def _sized_by_processor(documents: Mapping[str, Document], transfer: Transfer) -> Transfer:
    """Read the size from the processor, if no table of the tower follows the image."""
    pooling = pooling_of(documents.get("config.json", {}))
    stride = pooling[0].pixels_per_cell(pooling[2]) if pooling else None
    size = processor_size(documents, pooling[0].sized_by) if pooling else None
    if stride is None or size is None:
        return transfer
    assert transfer.asked is not None
    patch = Size(stride, stride)
    old = Grid(size.height // stride, size.width // stride)
    new = grid_of(transfer.asked, patch)
    return replace(
        transfer,
        from_size=size,
        to_size=transfer.asked,
        from_grid=old,
        to_grid=new,
        tables=False,
    )


def apply_edits(text: str, edits: Sequence[ConfigEdit]) -> str:
    """Apply edits to the text of their file; the rest of the text stays byte for byte the same."""
    for edit in edits:
        text = replace_value(text, edit.path, edit.after)
    return text


@dataclass(frozen=True, slots=True)
class _Found:
    place: ConfigPlace
    path: tuple[str, ...]
    value: object


# Keys that state the size of a tower: its config needs no other.
_TELLING = frozenset(
    {
        KeyKind.SIZE,
        KeyKind.SIDES,
        KeyKind.CELLS,
        KeyKind.WIDTH,
        KeyKind.GRID_HEIGHT,
        KeyKind.GRID_WIDTH,
    }
)
_EDITED_APART = {KeyKind.LENGTH, KeyKind.WINDOW, KeyKind.FRAMES}


def _image_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    if transfer.to_grid is None or transfer.from_grid is None:
        yield from _size_edits(documents, transfer)
        return
    # The config of a tower without a table states no size, but it states the number of tokens.
    kinds = set(KeyKind) - _EDITED_APART if transfer.tables else {KeyKind.TOKENS}
    found = _found(documents, kinds)
    if transfer.to_size is None:
        # The new size in pixels is unknown, so a config in pixels would keep the old size.
        if found or documents.keys() & {"config.json", "open_clip_config.json"}:
            raise GeometryError(
                "the patch size is not known, so the configs cannot be given a size in pixels.",
                hint=f"pass --patch N; or {NO_CONFIG}",
            )
        return
    _require_own_table(documents.get("config.json", {}), transfer)
    for file in dict.fromkeys(item.place.file for item in found):
        yield from _edits_of_file(
            [item for item in found if item.place.file == file], transfer, documents[file]
        )
    if not transfer.tables:
        return
    stated_in = {item.place.file for item in found if item.place.kind in _TELLING}
    yield from _missing(documents, stated_in, transfer)


def _found(documents: Mapping[str, Document], kinds: Collection[KeyKind]) -> list[_Found]:
    places = (place for place in PLACES if place.kind in kinds)
    return [_Found(place, *each) for place in places for each in stated(place, documents)]


def _size_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    """Set the requested size if no table has an image grid, such as in Swin."""
    if transfer.to_size is None:
        return
    found = _found(documents, {KeyKind.SIZE})
    for file in dict.fromkeys(item.place.file for item in found):
        of_file = [item for item in found if item.place.file == file]
        yield from _edits_of_file(of_file, transfer, documents[file])
    document = documents.get("config.json", {})
    timm = bool(document) and library_of("config.json", document) is Library.TIMM
    if timm and not transfer.free:  # a ResNet takes no img_size
        yield from _missing_timm(document, as_pixels(transfer.to_size), transfer.to_size)


def _require_own_table(document: Document, transfer: Transfer) -> None:
    """Refuse a table that has the pretraining size: its library would not load it resized."""
    if transfer.from_size == transfer.to_size:
        return
    for section in ((), ("vision_config",), ("backbone_config",)):
        value = follow(document, (*section, "pretrain_image_size"))
        if value is not None and as_size(value) == transfer.from_size:
            raise GeometryError(
                f"the absolute table has the size that config.json calls pretrain_image_size "
                f"({transfer.from_size}); transformers resamples it while it runs, from that size.",
                hint=f"set image_size in config.json and leave the weights; or {NO_CONFIG}",
            )


def _edits_of_file(
    found: Sequence[_Found], transfer: Transfer, document: Document
) -> Iterator[ConfigEdit]:
    sizes = [item for item in found if item.place.kind is KeyKind.SIZE]
    # A model with two towers states two sizes. Change only the one that equals the table's size.
    # If none does, the config was already wrong, and it is corrected.
    some_match = any(transfer.states(as_size(item.value)) for item in sizes)
    for item in found:
        if item.place.kind is KeyKind.SIZE:
            matches = transfer.states(as_size(item.value))
            if some_match and not matches and not item.place.always:
                continue
        square = square_only(document, item.path, item.place.library)
        after = new_value(item.place.kind, item.value, transfer)
        if after is None:
            continue
        if square and transfer.to_grid is not None and not _fits_square(item.place.kind, transfer):
            raise _not_square(square, transfer)
        yield ConfigEdit(item.place.file, item.path, item.value, after)


def _not_square(model: str, transfer: Transfer) -> GeometryError:
    return GeometryError(
        f"transformers takes {model} models for square images only, not for {transfer.to_size} px.",
        hint=f"choose a square target; or {NO_CONFIG}",
    )


def _fits_square(kind: KeyKind, transfer: Transfer) -> bool:
    assert transfer.to_size is not None and transfer.to_grid is not None
    if kind is KeyKind.SIZE:
        return transfer.to_size.height == transfer.to_size.width
    return transfer.to_grid.is_square or kind in (KeyKind.TOKENS, KeyKind.MULTIPLES)


def _missing(
    documents: Mapping[str, Document], stated_in: Collection[str], transfer: Transfer
) -> Iterator[ConfigEdit]:
    """Add the key without which the library would use its default size."""
    assert transfer.to_size is not None and transfer.to_grid is not None
    pixels = as_pixels(transfer.to_size)
    document = documents.get("config.json")
    if document is not None and library_of("config.json", document) is Library.TIMM:
        yield from _missing_timm(document, pixels, transfer.to_size)
    elif document is not None and "config.json" not in stated_in:
        yield _missing_hf(document, transfer)
    vision = ("model_cfg", "vision_cfg")
    clip = documents.get("open_clip_config.json", {})
    if isinstance(follow(clip, vision), dict) and follow(clip, (*vision, "image_size")) is None:
        yield ConfigEdit("open_clip_config.json", (*vision, "image_size"), None, pixels)


# model_types whose code states the size of the tower, and whose config does not. Molmo's released
# code: VisionBackboneConfig, image_num_pos 577.
_SIZE_IN_CODE = frozenset({"molmo"})


def _missing_hf(document: Document, transfer: Transfer) -> ConfigEdit:
    """Add the size to the section of the image model. Refuse if that section is not certain.

    In a wrong section the key would have no effect, because the section's class does not read it.
    """
    assert transfer.to_size is not None and transfer.to_grid is not None
    if model_type_of(document) in _SIZE_IN_CODE:
        raise GeometryError(
            f"the code of {document['model_type']} states the number of positions of its image "
            "tower, and no config does: it would not load another table. It resamples this one "
            "for every image.",
            hint=f"leave the weights as they are; or {NO_CONFIG}",
        )
    section = next(_image_sections(document), None)
    if section is None:
        raise GeometryError(
            "config.json states no image size, and which of its sections describes the image "
            "tower is not known.",
            hint=f"add the tower's image_size to it by hand; or {NO_CONFIG}",
        )
    part = follow(document, section)
    assert isinstance(part, dict)
    pixels = as_pixels(transfer.to_size)
    if model_type_of(part) == "timm_wrapper":
        return ConfigEdit("config.json", (*section, "model_args", "img_size"), None, pixels)
    if model_type_of(part) in TWO_SIDES:
        raise GeometryError(
            f"config.json states neither pos_emb_height nor pos_emb_width in {'.'.join(section)}, "
            "and this model reads both.",
            hint=f"add them to it by hand; or {NO_CONFIG}",
        )
    key = RESOLUTION_KEYS.get(model_type_of(part), "image_size")
    after: object = {
        "num_patches": transfer.to_grid.cells,
        "num_position_embeddings": transfer.to_grid.cells,
        "max_length": transfer.to_size.width,
    }.get(key, pixels)
    edit = ConfigEdit("config.json", (*section, key), None, after)
    square = square_only(document, edit.path, Library.HF)
    if square and transfer.to_size.height != transfer.to_size.width:
        raise _not_square(square, transfer)
    return edit


_TOWERS = ("vision_config", "encoder", "backbone_config", "image_config")


def _image_sections(document: Document) -> Iterator[tuple[str, ...]]:
    """Find sections that describe an image model, by their name or by a patch size.

    A text encoder is also called `encoder`, so a section of that name needs a patch size. The root
    is an image model only if it contains no towers.
    """
    wrappers = [wrapper for wrapper, _, _ in models_in(document)] or [()]
    for wrapper in wrappers:
        for name in _TOWERS:
            part = follow(document, (*wrapper, name))
            if isinstance(part, dict) and (name == "vision_config" or "patch_size" in part):
                yield (*wrapper, name)
    parts = [value for value in document.values() if isinstance(value, dict)]
    if not any("model_type" in part for part in parts):
        yield ()


def _missing_timm(document: Document, pixels: object, size: Size) -> Iterator[ConfigEdit]:
    nested = isinstance(document.get("pretrained_cfg"), dict)
    section: tuple[str, ...] = ("pretrained_cfg",) if nested else ()
    if follow(document, (*section, "input_size")) is None:
        after = [3, size.height, size.width]
        yield ConfigEdit("config.json", (*section, "input_size"), None, after)
    # timm passes input_size on to the constructor only for models marked with a fixed input size.
    if follow(document, (*section, "fixed_input_size")) is True:
        return
    if not nested:  # timm does not read model_args from such a file
        before = follow(document, ("fixed_input_size",))
        yield ConfigEdit("config.json", ("fixed_input_size",), before, True)
    elif follow(document, ("model_args", "img_size")) is None:
        yield ConfigEdit("config.json", ("model_args", "img_size"), None, pixels)


def _window_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    if transfer.to_window is None or transfer.to_window == transfer.from_window:
        return
    found = False
    for place in PLACES:
        if place.kind is KeyKind.WINDOW:
            for path, value in stated(place, documents):
                after = new_value(place.kind, value, transfer)
                if after is not None:
                    found = True
                    yield ConfigEdit(place.file, path, value, after)
    document = documents.get("config.json")
    if document is not None and not found and library_of("config.json", document) is Library.TIMM:
        window = transfer.to_window
        sides: object = window.height if window.is_square else [window.height, window.width]
        yield ConfigEdit("config.json", ("model_args", "window_size"), None, sides)


def _length_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    lengths = transfer.lengths
    for place in PLACES:
        if place.kind is KeyKind.LENGTH:
            for path, value in stated(place, documents):
                # RoBERTa's config counts reserved rows, OPT's does not. The old value shows which.
                if type(value) is int and value in lengths:
                    yield ConfigEdit(place.file, path, value, lengths[value])
