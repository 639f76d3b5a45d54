"""Config changes that the user has to make, because no config was found or none was edited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resize_pos.configs.keys import KeyKind, Library
from resize_pos.configs.library_keys import lengths_without_config, without_config
from resize_pos.configs.model_types import model_type_of
from resize_pos.configs.read import ConfigFiles, config_sizes, library_of
from resize_pos.configs.values import ConfigEdit, Transfer, as_pixels
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.json_edit import Document
from resize_pos.core.operations import ResampleKernel
from resize_pos.core.request import Request
from resize_pos.families.family import Family, Role
from resize_pos.families.tables import OF_IMAGES, Action, Step


@dataclass(frozen=True, slots=True)
class ConfigAdvice:
    """One value outside of the weights that must change before they can be used."""

    library: str
    file: str  # a file, or the function that takes the key
    key: str
    before: Any
    after: Any
    reason: str = ""  # why it was not changed, if that can differ from value to value

    def __str__(self) -> str:
        before = "(not set)" if self.before is None else self.before
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.library} {self.file}: {self.key} {before} → {self.after}{reason}"


# Arguments that the caller must pass to a processor, by model type. GotOcr2Processor writes 256
# image tokens by default: models/got_ocr2/processing_got_ocr2.py:83,230. AriaProcessor feeds 980 px
# whatever its config states: models/aria/processing_aria.py:55.
_CALLED_WITH: Mapping[str, tuple[str, KeyKind]] = {
    "got_ocr2": ("num_image_tokens", KeyKind.TOKENS),
    "aria": ("max_image_size", KeyKind.SIZE),
}


UNSAID = (Action.KEEP, Action.DROP, Action.SCALE)  # no config states these


def advise(
    steps: Sequence[Step], request: Request, files: ConfigFiles, *, edited: bool
) -> tuple[ConfigAdvice, ...]:
    """List the changes that are left to the user: in configs that were not edited, or in code."""
    changes = [step for step in steps if step.action not in UNSAID]
    transfer = Transfer.of(steps, request)
    if not changes and transfer.to_size is None:
        return ()
    if edited:
        return tuple(_calls(files.documents(("config.json",)).get("config.json", {}), transfer))
    documents = {n: d for n, d in files.documents().items() if _states_a_model(n, d)}
    edits = _edits(documents, transfer) if documents else ()
    patches = _patches(documents, steps)
    general = tuple(_general(steps, changes, transfer))
    found: Iterable[ConfigAdvice] = general
    if edits or patches:
        found = [
            ConfigAdvice(
                str(library_of(edit.file, documents[edit.file])),
                edit.file,
                edit.key,
                edit.before,
                edit.after,
            )
            for edit in (*edits, *patches)
        ]
        if not patches:  # no file of these can state it
            found += [each for each in general if each.key.endswith("patch_size")]
    return tuple({(each.library, each.file, each.key): each for each in found}.values())


# A config.json beside a lone file may be anybody's. Those of models have one of these.
_MARKS = {"model_type", "architectures", "architecture", "transformers_version", "_class_name"}


def _states_a_model(name: str, document: Document) -> bool:
    """Whether a file is the config of a model: by its name, by a mark, or by a size in it."""
    if name != "config.json" or _MARKS & document.keys():
        return True
    return library_of(name, document) is not Library.HF or bool(config_sizes({name: document}))


def _calls(config: Document, transfer: Transfer) -> Iterator[ConfigAdvice]:
    """List arguments that no config file can state: the processor takes them only per call."""
    found = _CALLED_WITH.get(model_type_of(config))
    if found is None or transfer.from_grid is None or transfer.to_grid is None:
        return
    from resize_pos.configs.vision_language import tokens_of  # only for such models

    key, kind = found
    old, new = transfer.old_size, transfer.to_size
    before: object
    after: object
    if kind is KeyKind.TOKENS:
        before, after = (tokens_of(config, grid) for grid in (transfer.from_grid, transfer.to_grid))
    else:
        before, after = (None if size is None else as_pixels(size) for size in (old, new))
    if before != after:
        yield ConfigAdvice("transformers", "the processor, when called", key, before, after)


def _edits(documents: Mapping[str, Document], transfer: Transfer) -> tuple[ConfigEdit, ...]:
    from resize_pos.configs.edits import plan_config_edits  # only if there are configs

    try:
        return plan_config_edits(documents, transfer)
    except GeometryError:  # these configs cannot state it; this is only advice
        return ()


def _patches(documents: Mapping[str, Document], steps: Sequence[Step]) -> tuple[ConfigEdit, ...]:
    """List where configs state the patch size, if the patch embedding is resized."""
    step = next((step for step in steps if isinstance(step.operation, ResampleKernel)), None)
    if step is None or not documents:
        return ()
    from resize_pos.configs.patch_advice import patch_edits  # only with --to-patch

    old, new = (Size(side.height, side.width) for side in (step.table.grid, step.target))
    return tuple(patch_edits(documents, old, new))


def _general(
    steps: Sequence[Step], changes: Sequence[Step], transfer: Transfer
) -> Iterator[ConfigAdvice]:
    """List what each library takes the new values from, for weights without a config.

    A table may stay while the model's size changes: a window, or a grid of larger patches.
    """
    composite = {step.table.role for step in steps} >= {Role.SEQUENCE, Role.ABSOLUTE}
    images = [step for step in steps if step.table.role in _SIZED]
    for library in dict.fromkeys(_library(step.table.family) for step in images):
        values = _image_values(transfer, [s for s in images if _library(s.table.family) == library])
        for place in without_config(library, composite=composite):
            if place.kind in values and values[place.kind][0] != values[place.kind][1]:
                yield ConfigAdvice(library, place.file, place.key, *values[place.kind])
    for step in changes:
        if step.table.role is Role.SEQUENCE:
            library = _library(step.table.family)
            name = step.table.family.name
            for place, reserved in lengths_without_config(library, name, composite=composite):
                extra = step.table.prefix + step.table.suffix if reserved else 0
                before, after = step.table.grid.cells + extra, step.target.cells + extra
                yield ConfigAdvice(library, place.file, place.key, before, after)


_SIZED = OF_IMAGES - {Role.REFERENCE, Role.INDEX}


def _image_values(
    transfer: Transfer, steps: Sequence[Step]
) -> Mapping[KeyKind, tuple[object, object]]:
    """Return the values before and after, by what they count."""
    values: dict[KeyKind, tuple[object, object]] = {}
    old, new = transfer.old_size, transfer.to_size
    if new is not None:
        values[KeyKind.SIZE] = None if old is None else as_pixels(old), as_pixels(new)
    if transfer.frames is not None:
        values[KeyKind.FRAMES] = transfer.frames
    for step in steps:
        if step.table.patch is not None and transfer.cell is not None and step.table.kernel:
            patches = as_pixels(step.table.patch), as_pixels(transfer.cell)
            values.setdefault(KeyKind.PATCH, patches)
    if transfer.from_window is not None and transfer.to_window is not None:
        windows = transfer.from_window, transfer.to_window
        before, after = (as_pixels(Size(w.height, w.width)) for w in windows)
        values[KeyKind.WINDOW] = before, after
    return values


def _library(family: Family) -> str:
    """Return the library that a family's names come from."""
    if family.name.startswith("hf-") or "transformers" in family.source.split()[0]:
        return "transformers"
    if "open_clip" in family.source:
        return "open_clip"
    if "torchvision" in family.source:
        return "torchvision"
    return "timm" if "timm/" in family.source else "the model's code"
