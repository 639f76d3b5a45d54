"""What a transfer means for the config files beside the weights: documents in, edits out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from resize_pos.configs.keys import (
    PLACES,
    RESOLUTION_KEYS,
    SQUARE_ONLY,
    Kind,
    Library,
    Place,
)
from resize_pos.configs.processors import plan_processor_edits
from resize_pos.configs.read import NO_CONFIG, Document, as_size, follow, library_of, stated
from resize_pos.configs.values import ConfigEdit, Transfer, as_pixels, new_value
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import replace_value


def plan_config_edits(
    documents: Mapping[str, Document], transfer: Transfer
) -> tuple[ConfigEdit, ...]:
    """List every value that has to change for the new weights to be loaded and fed."""
    if transfer.from_size is None and transfer.to_size is not None:
        stated_sizes = (as_size(found.value) for found in _found(documents, {Kind.SIZE}))
        transfer = replace(transfer, from_size=next(filter(None, stated_sizes), None))
    edits = [
        *_image_edits(documents, transfer),
        *_length_edits(documents, transfer),
        *_window_edits(documents, transfer),
        *plan_processor_edits(documents, transfer),
    ]
    return tuple(edit for edit in edits if edit.before != edit.after)


def apply_edits(text: str, edits: Sequence[ConfigEdit]) -> str:
    """Write edits into the text of their file, and touch nothing else of it."""
    for edit in edits:
        text = replace_value(text, edit.path, edit.after)
    return text


@dataclass(frozen=True, slots=True)
class _Found:
    place: Place
    path: tuple[str, ...]
    value: object


def _image_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    if transfer.to_grid is None or transfer.from_grid is None:
        yield from _size_edits(documents, transfer)
        return
    found = _found(documents, set(Kind) - {Kind.LENGTH, Kind.WINDOW})
    if transfer.to_size is None:
        # Nothing can be said in pixels; a file that needs it would be left at the old size.
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
    telling = (Kind.SIZE, Kind.CELLS, Kind.WIDTH)
    stated_in = {item.place.file for item in found if item.place.kind in telling}
    yield from _missing(documents, stated_in, transfer)


def _found(documents: Mapping[str, Document], kinds: Collection[Kind]) -> list[_Found]:
    places = (place for place in PLACES if place.kind in kinds)
    return [_Found(place, *each) for place in places for each in stated(place, documents)]


def _size_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    """Set the size that was asked for where no table has a grid: Swin follows a window."""
    if transfer.to_size is None:
        return
    found = _found(documents, {Kind.SIZE})
    for file in dict.fromkeys(item.place.file for item in found):
        of_file = [item for item in found if item.place.file == file]
        yield from _edits_of_file(of_file, transfer, documents[file])
    document = documents.get("config.json", {})
    if document and library_of("config.json", document) is Library.TIMM:
        yield from _missing_timm(document, as_pixels(transfer.to_size), transfer.to_size)


def _require_own_table(document: Document, transfer: Transfer) -> None:
    """Refuse a table whose size is that of another training: its library would not load it."""
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
    sizes = [item for item in found if item.place.kind is Kind.SIZE]
    # A model with two towers states two sizes: only the one that the table has is meant. If none
    # is stated, the config was wrong before, and what it states is set right.
    some_match = any(as_size(item.value) == transfer.from_size for item in sizes)
    for item in found:
        if item.place.kind is Kind.SIZE:
            matches = as_size(item.value) == transfer.from_size
            if some_match and not matches and not item.place.always:
                continue
        square = _square_only(document, item.path, item.place.library)
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


def _fits_square(kind: Kind, transfer: Transfer) -> bool:
    assert transfer.to_size is not None and transfer.to_grid is not None
    if kind is Kind.SIZE:
        return transfer.to_size.height == transfer.to_size.width
    return transfer.to_grid.is_square or kind in (Kind.TOKENS, Kind.MULTIPLES)


def _square_only(document: Document, path: tuple[str, ...], library: Library) -> str | None:
    """Name the model_type whose code takes one number here; None when a pair is fine."""
    if library is not Library.HF:
        return None
    section = follow(document, path[:-1])
    own = section.get("model_type") if isinstance(section, dict) else None
    model = own or document.get("model_type")
    return model if model in SQUARE_ONLY else None


def _missing(
    documents: Mapping[str, Document], stated_in: Collection[str], transfer: Transfer
) -> Iterator[ConfigEdit]:
    """Add the one key without which the library would build its default size."""
    assert transfer.to_size is not None and transfer.to_grid is not None
    pixels = as_pixels(transfer.to_size)
    document = documents.get("config.json")
    if document is not None and library_of("config.json", document) is Library.TIMM:
        yield from _missing_timm(document, pixels, transfer.to_size)
    elif document is not None and "config.json" not in stated_in:
        sections = [s for s in (("vision_config",), ("encoder",), ()) if _is_model(document, s)]
        if sections:
            part = follow(document, sections[0])
            assert isinstance(part, dict)
            key = RESOLUTION_KEYS.get(part.get("model_type", ""), "image_size")
            after: object = {
                "num_patches": transfer.to_grid.cells,
                "max_length": transfer.to_size.width,
            }.get(key, pixels)
            edit = ConfigEdit("config.json", (*sections[0], key), None, after)
            square = _square_only(document, edit.path, Library.HF)
            if square and transfer.to_size.height != transfer.to_size.width:
                raise _not_square(square, transfer)
            yield edit
    vision = ("model_cfg", "vision_cfg")
    clip = documents.get("open_clip_config.json", {})
    if isinstance(follow(clip, vision), dict) and follow(clip, (*vision, "image_size")) is None:
        yield ConfigEdit("open_clip_config.json", (*vision, "image_size"), None, pixels)


def _is_model(document: Document, section: tuple[str, ...]) -> bool:
    """A text encoder is also called encoder; only what says it has patches is an image model."""
    part = follow(document, section)
    if not isinstance(part, dict):
        return False
    return section != ("encoder",) or "patch_size" in part


def _missing_timm(document: Document, pixels: object, size: Size) -> Iterator[ConfigEdit]:
    nested = isinstance(document.get("pretrained_cfg"), dict)
    section: tuple[str, ...] = ("pretrained_cfg",) if nested else ()
    if follow(document, (*section, "input_size")) is None:
        after = [3, size.height, size.width]
        yield ConfigEdit("config.json", (*section, "input_size"), None, after)
    # timm passes input_size on to the constructor only for models marked with a fixed input size.
    if follow(document, (*section, "fixed_input_size")) is True:
        return
    if not nested:  # model_args are not read from such a file
        before = follow(document, ("fixed_input_size",))
        yield ConfigEdit("config.json", ("fixed_input_size",), before, True)
    elif follow(document, ("model_args", "img_size")) is None:
        yield ConfigEdit("config.json", ("model_args", "img_size"), None, pixels)


def _window_edits(documents: Mapping[str, Document], transfer: Transfer) -> Iterator[ConfigEdit]:
    if transfer.to_window is None or transfer.to_window == transfer.from_window:
        return
    found = False
    for place in PLACES:
        if place.kind is Kind.WINDOW:
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
        if place.kind is Kind.LENGTH:
            for path, value in stated(place, documents):
                # RoBERTa's config counts the reserved rows and OPT's does not: the value tells.
                if type(value) is int and value in lengths:
                    yield ConfigEdit(place.file, path, value, lengths[value])
