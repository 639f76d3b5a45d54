"""Config changes that the user has to make, because no config was found or none was edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resize_pos.configs.read import ConfigFiles, library_of
from resize_pos.configs.values import ConfigEdit, Transfer, as_pixels
from resize_pos.configs.vision_language import tokens_of
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import Document
from resize_pos.core.request import Request
from resize_pos.families.family import Family, Role
from resize_pos.families.tables import Action, Step


@dataclass(frozen=True, slots=True)
class ConfigAdvice:
    """One value outside of the weights that must change before they can be used."""

    library: str
    file: str  # a file, or the function that takes the key
    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before = "(not set)" if self.before is None else self.before
        return f"{self.library} {self.file}: {self.key} {before} → {self.after}"


# Arguments that the caller must pass to a processor, by model type. GotOcr2Processor writes 256
# image tokens by default: models/got_ocr2/processing_got_ocr2.py:83,230.
_CALLED_WITH: Mapping[str, str] = {"got_ocr2": "num_image_tokens"}

# Where each library takes the size from, for weights without a config.
_IMAGE: Mapping[str, tuple[tuple[str, str], ...]] = {
    "transformers": (
        ("config.json", "image_size"),
        ("preprocessor_config.json", "size"),
    ),
    "timm": (("create_model", "img_size"),),
    "open_clip": (("open_clip_config.json", "model_cfg.vision_cfg.image_size"),),
    "torchvision": (("the model's constructor", "image_size"),),
    "the model's code": (("its constructor", "image size"),),
}
_TEXT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "transformers": (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ),
    "open_clip": (("open_clip_config.json", "model_cfg.text_cfg.context_length"),),
    "the model's code": (("its constructor", "context length"),),
}


def advise(
    steps: Sequence[Step], request: Request, files: ConfigFiles, *, edited: bool
) -> tuple[ConfigAdvice, ...]:
    """List the changes that are left to the user: in configs that were not edited, or in code."""
    unsaid = (Action.KEEP, Action.DROP, Action.SCALE)  # no config states these
    changes = [step for step in steps if step.action not in unsaid]
    if not changes:
        return ()
    transfer = Transfer.of(steps, images_too=request.to_image, asked=request.to_size)
    if edited:
        return tuple(_calls(files.documents(("config.json",)).get("config.json", {}), transfer))
    documents = files.documents()
    edits = _edits(documents, transfer) if documents else ()
    if edits:
        return tuple(
            ConfigAdvice(
                str(library_of(edit.file, documents[edit.file])),
                edit.file,
                edit.key,
                edit.before,
                edit.after,
            )
            for edit in edits
        )
    return tuple(_general(changes, transfer))


def _calls(config: Document, transfer: Transfer) -> Iterator[ConfigAdvice]:
    """List arguments that no config file can state: the processor takes them only per call."""
    key = _CALLED_WITH.get(str(config.get("model_type")))
    if key is None or transfer.from_grid is None or transfer.to_grid is None:
        return
    before, after = (tokens_of(config, grid) for grid in (transfer.from_grid, transfer.to_grid))
    if before != after:
        yield ConfigAdvice("transformers", "the processor, when called", key, before, after)


def _edits(documents: Mapping[str, Document], transfer: Transfer) -> tuple[ConfigEdit, ...]:
    from resize_pos.configs.edits import plan_config_edits  # only if there are configs

    try:
        return plan_config_edits(documents, transfer)
    except GeometryError:  # these configs cannot state it; this is only advice
        return ()


def _general(changes: Sequence[Step], transfer: Transfer) -> Iterator[ConfigAdvice]:
    seen = set()
    for step in changes:
        table = step.table
        library = _library(table.family)
        before: object
        after: object
        if table.role is Role.ABSOLUTE and transfer.from_size and transfer.to_size:
            keys = _IMAGE.get(library, _IMAGE["the model's code"])
            before, after = as_pixels(transfer.from_size), as_pixels(transfer.to_size)
        elif table.role is Role.SEQUENCE:
            keys = _TEXT.get(library, _TEXT["the model's code"])
            before, after = table.grid.cells, step.target.cells
        else:
            continue
        if (library, table.role) not in seen:
            seen.add((library, table.role))
            for file, key in keys:
                yield ConfigAdvice(library, file, key, before, after)


def _library(family: Family) -> str:
    """Return the library that a family's names come from."""
    if family.name.startswith("hf-") or "transformers" in family.source.split()[0]:
        return "transformers"
    if "open_clip" in family.source:
        return "open_clip"
    if "torchvision" in family.source:
        return "torchvision"
    return "timm" if "timm/" in family.source else "the model's code"
