"""Do the weights, the config and the processor of a folder agree? Answered from headers alone.

The weights are the reference, because they decide which model can be built. A folder agrees if
three conditions hold: a transfer to its own size needs no config edits, every count of image tokens
matches the model's grid, and the model can run that grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from resize_pos.configs.edits import complete, plan_config_edits
from resize_pos.configs.keys import (
    BOUNDS,
    PLACES,
    PROCESSOR_FILES,
    PROCESSOR_KEYS,
    PROCESSOR_SECTIONS,
    KeyKind,
)
from resize_pos.configs.model_types import model_type_of
from resize_pos.configs.processors import processor_size
from resize_pos.configs.read import ConfigFiles, as_size, follow, stated
from resize_pos.configs.values import ConfigEdit, Transfer, new_value
from resize_pos.configs.vision_language import Tokens, pooling_of, require_runnable, tokens_of
from resize_pos.containers.detect import open_container
from resize_pos.core.errors import ContainerError, GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.json_edit import Document
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, PositionTable
from resize_pos.planning.locate import locate_in

# Model types that resample their table for every image, so a processor may use any size.
_ANY_SIZE = frozenset({"dinov2", "dinov2_with_registers", "sam", "sam_hq", "idefics2"})
# Model types that take the whole image at `size`, and its parts at another `tile_size`.
_OTHER_TILES = frozenset({"deepseek_ocr2", "unlimited_ocr"})


@dataclass(frozen=True, slots=True)
class FolderCheck:
    """What was compared, and what does not fit, each in one line."""

    compared: tuple[str, ...]
    disagreements: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether no disagreement was found."""
        return not self.disagreements


@dataclass(frozen=True, slots=True)
class _Tower:
    """One image tower: the grid of its table or, without a table, of its processor."""

    name: str
    grid: Grid
    size: Size
    tables: bool = True
    resampled: bool = False  # the model resamples the table, so processors may use any size


def check_folder(folder: Path, request: Request | None = None) -> FolderCheck:
    """Compare everything in a folder that states a size or counts tokens."""
    if not folder.is_dir():
        raise ContainerError(
            f"{folder}: is not a folder.", hint="name a folder, or pass --config DIR."
        )
    documents = ConfigFiles(folder).documents()
    if "config.json" not in documents and "open_clip_config.json" not in documents:
        broken = "; ".join(_unreadable(folder, documents))
        raise ContainerError(
            f"{folder}: {broken}."
            if broken
            else f"{folder}: holds no config.json and no open_clip_config.json to compare with."
        )
    located = locate_in(open_container(folder), request or Request())
    for unsettled in located.unsettled:
        raise unsettled.error
    config = documents.get("config.json", {})
    towers = list(_towers(located, "vision_config" in config)) or list(
        _towers_without_tables(documents)
    )
    found = [*_unreadable(folder, documents), *_no_numbers(documents)]
    compared: list[str] = []
    if not documents.keys() & set(PROCESSOR_FILES):
        compared.append("no processor file was found")
    if not towers:
        compared.append("no table in the weights follows the image size")
    for tower in towers:
        compared.append(f"{tower.name}: {tower.grid} cells, {tower.size} px")
        found += _of_tower(documents, config, tower, towers)
    return FolderCheck(tuple(compared), tuple(dict.fromkeys(found)))


def _towers(located: Located, resampled: bool) -> Iterator[_Tower]:
    """List the towers by their tables; tables that the model resamples only if asked for."""
    seen = set()
    for table in located.tables:
        reference = table.role is Role.REFERENCE
        if not _tells_size(table) or table.tiling is None:
            continue
        if (not resampled or table.grid.height == 1) if reference else table.pixels is None:
            continue
        covered = table.tiling.pixels(table.grid)  # a config may state some pixels more
        if covered not in seen:
            seen.add(covered)
            yield _Tower(table.name, table.grid, covered, resampled=reference)


def _tells_size(table: PositionTable) -> bool:
    telling = (Role.ABSOLUTE, Role.MIXING, Role.REFERENCE)
    return table.role in telling and table.follows is None


def _unreadable(folder: Path, documents: Mapping[str, Document]) -> Iterator[str]:
    """Report files that are there and hold no JSON object."""
    for file in ("config.json", "open_clip_config.json", *PROCESSOR_FILES):
        if file not in documents and (folder / file).exists():
            yield f"{file}: cannot be read as a JSON object"


def _no_numbers(documents: Mapping[str, Document]) -> Iterator[str]:
    """Report sizes and counts that are texts: no library computes with them."""
    for file, key, _, value in _places(documents, (KeyKind.SIZE, KeyKind.TOKENS)):
        if isinstance(value, str):
            yield f"{file}: {key} is the text {value!r}, not a number"


def _towers_without_tables(documents: Mapping[str, Document]) -> Iterator[_Tower]:
    found = pooling_of(documents.get("config.json", {}))
    stride = found[0].pixels_per_cell(found[2]) if found else None
    size = processor_size(documents, found[0].sized_by) if found else None
    if stride is not None and size is not None:
        grid = Grid(size.height // stride, size.width // stride)
        yield _Tower("the processor", grid, size, tables=False)


def _of_tower(
    documents: Mapping[str, Document], config: Document, tower: _Tower, towers: Sequence[_Tower]
) -> Iterator[str]:
    same = Transfer(tower.size, tower.size, tower.grid, tower.grid, tables=tower.tables)
    cell = Size(tower.size.height // tower.grid.height, tower.size.width // tower.grid.width)
    try:
        require_runnable(config, tower.grid, cell)
        same = complete(documents, same)
        same = replace(same, to_size=same.stated or tower.size)
        edits = plan_config_edits(documents, same)
    except GeometryError as error:
        yield f"{tower.name}: {error.message}"
        return
    sizes = {other.size for other in towers}
    for edit in edits:
        free = _is_free(config, edit) or (tower.resampled and edit.file in PROCESSOR_FILES)
        if not free and not _of_another(edit, same, sizes):
            yield _words(edit, tower)
    if tower.tables and tower is towers[0]:
        yield from _patches(documents, config, towers)
    if tower.resampled:
        return
    if same.counts or same.tokens is not None:
        yield from _tokens(documents, config, tower)
    if tower is towers[0]:
        yield from _fixed_tokens(documents, config)
        yield from _bounds(documents, config, towers)
    yield from _multiples(documents, same)


def _words(edit: ConfigEdit, tower: _Tower) -> str:
    said = "says nothing" if edit.before is None else f"is {edit.before}"
    return (
        f"{edit.file}: {edit.key} {said}, but {tower.name} is {tower.grid} cells ({tower.size} px),"
        f" for which it is {edit.after}"
    )


def _is_free(config: Document, edit: ConfigEdit) -> bool:
    """Whether a processor may use another size, because the model resamples its table."""
    return edit.file in PROCESSOR_FILES and model_type_of(config) in _ANY_SIZE


def _of_another(edit: ConfigEdit, same: Transfer, sizes: set[Size]) -> bool:
    """Whether a value is the size of another tower."""
    return as_size(edit.before) in sizes - {same.from_size}


def _places(
    documents: Mapping[str, Document], kinds: Sequence[KeyKind]
) -> Iterator[tuple[str, str, KeyKind, object]]:
    """List every value of some kinds, in configs and processors."""
    for place in PLACES:
        if place.kind in kinds:
            for path, value in stated(place, documents):
                yield place.file, ".".join(path), place.kind, value
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS:
            part = follow(documents.get(file, {}), section)
            for key, kind, _ in PROCESSOR_KEYS:
                if kind in kinds and isinstance(part, dict) and part.get(key) is not None:
                    yield file, ".".join((*section, key)), kind, part[key]


def _tokens(documents: Mapping[str, Document], config: Document, tower: _Tower) -> Iterator[str]:
    tokens = tokens_of(config, tower.grid)
    if tokens is None:
        return
    right = {tokens, tokens + 1, tower.grid.cells}  # + 1: a class token is counted, too
    for file, key, _, value in _places(documents, (KeyKind.TOKENS,)):
        if type(value) is int and value not in right:
            yield (
                f"{file}: {key} is {value}, but the model makes {tokens} tokens of "
                f"{tower.name}'s {tower.grid} cells"
            )


def _fixed_tokens(documents: Mapping[str, Document], config: Document) -> Iterator[str]:
    """For a model with a fixed number of tokens, compare all counts with the stated one."""
    found = pooling_of(config)
    if found is None or found[0].tokens is not Tokens.FIXED or not found[0].key:
        return
    wanted = follow(found[2], found[0].key)
    for file, key, _, value in _places(documents, (KeyKind.TOKENS,)):
        if wanted is not None and value != wanted:
            yield f"{file}: {key} is {value}, but {'.'.join(found[0].key)} is {wanted}"


def _bounds(
    documents: Mapping[str, Document], config: Document, towers: Sequence[_Tower]
) -> Iterator[str]:
    """Compare the tiles of a processor with the sizes that the towers take."""
    if pooling_of(config) is None:
        return
    bounds = [key for key, _ in BOUNDS]
    if model_type_of(config) in _OTHER_TILES:
        bounds.remove("tile_size")
    for file in PROCESSOR_FILES:
        for section in PROCESSOR_SECTIONS:
            part = follow(documents.get(file, {}), section)
            for key in bounds if isinstance(part, dict) else ():
                value = part.get(key) if isinstance(part, dict) else None
                size = _edge(value)
                if size is not None and not any(_same(size, tower) for tower in towers):
                    sizes = ", ".join(str(tower.size) for tower in towers)
                    name = ".".join((*section, key))
                    yield f"{file}: {name} is {value}, but the towers take {sizes} px"


def _patches(
    documents: Mapping[str, Document], config: Document, towers: Sequence[_Tower]
) -> Iterator[str]:
    """Compare the patch size beside each image size with the pixels per cell of its tower."""
    if pooling_of(config) is None:
        return
    for place in PLACES:
        if place.kind is not KeyKind.SIZE or place.file != "config.json":
            continue
        for path, value in stated(place, documents):
            patch = as_size(follow(config, (*path[:-1], "patch_size")))
            size = as_size(value)
            for tower in towers:
                cell = Size(
                    tower.size.height // tower.grid.height, tower.size.width // tower.grid.width
                )
                if patch and size and _same(size, tower) and patch != cell:
                    name = ".".join((*path[:-1], "patch_size"))
                    yield f"config.json: {name} is {patch}, but {tower.name} has {cell} px per cell"


def _edge(value: object) -> Size | None:
    if isinstance(value, dict) and type(value.get("longest_edge")) is int:
        return Size(value["longest_edge"], value["longest_edge"])
    return as_size(value)


def _same(size: Size, tower: _Tower) -> bool:
    return Transfer(tower.size, from_grid=tower.grid).states(size)


def _multiples(documents: Mapping[str, Document], same: Transfer) -> Iterator[str]:
    """Report lists of sizes that are not multiples of the image size."""
    for file, key, kind, value in _places(documents, (KeyKind.MULTIPLES,)):
        if new_value(kind, value, replace(same, to_size=same.old_size)) is None:
            yield f"{file}: {key} holds sizes that are no multiples of {same.old_size} px"
