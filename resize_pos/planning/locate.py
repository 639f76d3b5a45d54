"""Names and shapes → position tables, near misses, and tables whose geometry is not determined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request, as_lengths
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role, name_pattern
from resize_pos.families.registry import family_named, registry
from resize_pos.families.tables import (
    LeftAlone,
    Located,
    NearMiss,
    PositionTable,
    Unsettled,
    is_all_text,
)
from resize_pos.planning.census.shown_cells import find_shown, require_rows_first
from resize_pos.planning.custom import chosen_layout, custom_families
from resize_pos.planning.geometry.grid_solver import Geometry
from resize_pos.planning.geometry.sincos_detect import recognise_fixed
from resize_pos.planning.geometry.stated_grid import require_stated_grid
from resize_pos.planning.rules import RULES
from resize_pos.planning.rules.base import Match, Surroundings, with_rows_around
from resize_pos.planning.unknown_names.by_value import UnknownTables, find_by_value, match_by_shape
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    has_pixels,
    is_convolution,
    sound_of,
    sounds_like_sequence,
)
from resize_pos.planning.unknown_names.commands import (
    LEFT,
    UNKNOWN_NAME,
    reads_sequences,
    with_one_command,
)
from resize_pos.planning.unknown_names.row_numbers import with_their_tables
from resize_pos.planning.unknown_names.signals import as_signal, line_match, require_image

_SOUNDS_LIKE = lazy_regex(r"pos(?:ition|itional)?_?(?:emb|enc|bias|table)|rel_pos|wpe\b", re.I)

_IMAGE = frozenset(
    {Role.ABSOLUTE, Role.MIXING, Role.RELATIVE, Role.DISTANCE, Role.REFERENCE, Role.INDEX}
)
_GRIDS = frozenset({Role.ABSOLUTE, Role.MIXING, Role.REFERENCE})  # one row per cell of the image
_SAME_DIGIT = bytes.maketrans(b"123456789", b"000000000")  # of bytes: a fifth of the time
_MOST_NAMES = 100_000  # some 30 MB
_NAMES_AT_ONCE = 1000  # together they take a third of the time


def locate_in(
    container: Container, request: Request, known: Mapping[str, Geometry] | None = None
) -> Located:
    """Find the position tables of an opened checkpoint, and check assumed squares.

    `known` is geometry that is recorded elsewhere, such as in a file made from this one.
    """
    from resize_pos.planning.geometry.prefix_place import check_prefix_places
    from resize_pos.planning.geometry.value_checks import check_assumed_squares

    around = Surroundings.of(container, request)
    if known:
        around = replace(around, known={**known, **around.known})
    located = check_assumed_squares(locate_tables(around), container.read, container.peek)
    return check_prefix_places(located, around)


def locate_tables(around: Surroundings) -> Located:
    """Find every position table of a checkpoint and determine its geometry.

    The input of an exported graph says as much as --from; it is used where the rest leaves a doubt.
    """
    located, request, size = _located(around), around.request, around.graph_size
    open_sizes = (t.patch is None and t.role in _GRIDS for t in located.tables)
    if size is None or not (located.unsettled or any(open_sizes)):
        return located
    if request.from_size is not None or request.from_grid is not None:
        return located
    stated = with_rows_around(replace(request, from_size=size), around.graph_rows)
    again = _located(replace(around, request=stated, _found={}))
    return located if again.unsettled else replace(again, graph_size=size)


def _located(around: Surroundings) -> Located:
    names = _names(around.request.family)
    customs = custom_families(around)
    matches: dict[Role, list[Match]] = {role: [] for role in RULES}
    near_misses: list[NearMiss] = []
    left_alone: list[LeftAlone] = []
    unsettled: list[Unsettled] = []
    telling = around.tensors if customs else names.telling(around.tensors)
    for tensor in map(around.tensors.__getitem__, telling):
        match: Match | LeftAlone | None
        objections: Sequence[str] = ()
        custom = next((family for family in customs if family.stem(tensor.name) is not None), None)
        if custom is not None:
            try:
                match, objections = _custom_match(tensor, custom, around)
            except GeometryError as error:
                unsettled.append(Unsettled(tensor, custom, error))
                continue
        else:
            named = names.stems(tensor.name)
            match, objections = _match(tensor, around, named) if named else (None, ())
        if isinstance(match, LeftAlone):
            left_alone.append(match)
        elif match is not None:
            matches[match.family.role].append(match)
        elif is_convolution(tensor, around.tensors):
            continue  # positions by a depthwise convolution: UniFormer's pos_embed.weight
        elif objections or _sounds_like(tensor):
            reason = "; ".join(objections) or UNKNOWN_NAME
            near_misses.append(NearMiss(tensor, reason))
    if near_misses:
        from resize_pos.planning.unknown_names.windows import windows_left_alone

        windows = windows_left_alone(near_misses, around.tensors)
        left_alone += windows
        passed = {each.tensor.name for each in windows}
        near_misses = [miss for miss in near_misses if miss.tensor.name not in passed]
    pictured = bool(around.configs)  # ALIGN: a text table, and images for a convolution
    explained = {match.tensor.name for found in matches.values() for match in found}
    explained |= {each.tensor.name for each in left_alone} | {e.tensor.name for e in unsettled}
    # In a model of texts, a family's own reason against a table says more than its shape.
    objected = any(miss.reason != UNKNOWN_NAME for miss in near_misses)
    objected = objected and reads_sequences(around.tensors)
    text = not pictured and is_all_text(role for role, found in matches.items() if found)
    if text and has_pixels(around.tensors.values()):
        # A model of texts and images may hold a table of the image under an unknown name.
        text = not find_by_value(around, {}, explained).any
    if text and not around.many:
        around = replace(around, request=as_lengths(around.request))
    leave = around.request.leave
    left = None if leave is None else name_pattern("--leave", *leave)
    tables: dict[str, PositionTable] = {}
    for role, rule in RULES.items():
        # A table that follows another one needs the geometry of that one first.
        for match in sorted(matches[role], key=lambda match: match.family.follows is not None):
            try:
                table = rule.settle(match, around, tables)
                table = recognise_fixed(table, around.read, around.peek)
                table = require_rows_first(require_stated_grid(table, around), around)
                table = require_image(table, around)
                tables[match.tensor.name] = table
            except GeometryError as error:
                if left and left.search(match.tensor.name):
                    left_alone.append(LeftAlone(match.tensor, LEFT))
                else:
                    if role is Role.ABSOLUTE and "(p t " not in (error.hint or ""):
                        error = as_signal(error, match.tensor, match.layout, around)
                    unsettled.append(Unsettled(match.tensor, match.family, error))
    by_name = around.request.family is not None
    explained |= {entry.tensor.name for entry in unsettled}
    explained |= {each.tensor.name for each in left_alone}
    if around.states:
        explained |= {name for name in around.tensors if name.startswith(around.states)}
    known_ones = text or by_name or objected
    found = UnknownTables() if known_ones else find_by_value(around, tables, explained)
    tables |= {table.name: table for table in found.tables}
    tables |= {numbers.name: numbers for numbers in with_their_tables(tables)}
    if not (known_ones or tables or unsettled or found.any or customs):
        from resize_pos.planning.unknown_names.other_names import find_despite_names

        unsettled += find_despite_names(around, explained - {e.tensor.name for e in left_alone})
    image = any(table.role in _IMAGE for table in tables.values())
    gridded = any(t.role in _GRIDS and {"h", "w"} <= t.layout.axes for t in tables.values())
    gridded = gridded or any(entry.family.role in _GRIDS for entry in unsettled)
    little = (*found.weak, *found.neutral)
    unsettled += with_one_command(found.strong if image else (*found.strong, *little))
    known = {each.name for each in found.tables} | {each.tensor.name for each in unsettled}
    near_misses = [
        miss
        for miss in near_misses
        if miss.tensor.name not in known and not (left and left.search(miss.tensor.name))
    ]
    looks_like = tuple(
        NearMiss(entry.tensor, entry.error.message) for entry in (little if image else ())
    )
    if around.request.also is not None:
        from resize_pos.planning.join import joined_tables

        tables |= {table.name: table for table in joined_tables(around, tables)}
    if around.request.to_patch is not None:
        from resize_pos.planning.rules.patch_kernel import kernel_tables

        kernels = kernel_tables(tables.values(), around.tensors)
        tables |= {table.name: table for table in kernels}
    ordered = tuple(tables[name] for name in around.tensors if name in tables)
    return Located(
        ordered,
        tuple(unsettled),
        tuple(near_misses),
        tuple(left_alone),
        pictured,
        around.many,
        {n: info for n, info in around.tensors.items() if not n.startswith(around.states)}
        if around.states
        else around.tensors,
        looks_like,
        {} if known_ones or unsettled else find_shown(around, tables, explained),
    )


def _custom_match(
    tensor: TensorInfo, family: Family, around: Surroundings
) -> tuple[Match | None, list[str]]:
    """Match a tensor that `--pattern` names. Without --axes, its shape says how it is laid out."""
    fits = [axes for axes in family.axes if axes.mismatch(tensor.shape) is None]
    if not fits:
        return None, [f"not {family.name}: {family.objection('', around.tensors, tensor.shape)}"]
    layout = fits[0] if len(fits) == 1 else chosen_layout(tensor, fits, around)
    if family.role is Role.SEQUENCE:
        return line_match(tensor, family, layout, around), []
    return match_by_shape(tensor, layout, around, family), []


def _sounds_like(tensor: TensorInfo) -> bool:
    """Whether a name suggests a table; scales and frequencies of a formula are none.

    What reads two or three numbers reads coordinates.
    """
    if len(tensor.shape) == 2 and tensor.shape[1] in (2, 3) and tensor.name.endswith("r.weight"):
        return False
    found = _SOUNDS_LIKE.search(tensor.name) is not None
    if len(tensor.shape) > 1:
        return found or sounds_like_sequence(tensor.name)
    return found and sound_of(tensor.name) is not Sound.OTHER


class _Names:
    """Which families match a name. Cached, because a model zoo repeats the same names."""

    def __init__(self, candidates: Callable[[str], Iterable[Family]]) -> None:
        self._candidates = candidates
        self._stems: dict[str, tuple[tuple[Family, str], ...]] = {}
        self._says_nothing: dict[bytes, bool] = {}  # by name, with every digit replaced by 0

    def telling(self, names: Iterable[str]) -> Iterator[str]:
        """Return the names that a family may match, or that suggest a table.

        Names of blocks and layers differ only in their numbers: one lookup serves them all.
        """
        rest = iter(names)
        while some := tuple(islice(rest, _NAMES_AT_ONCE)):
            alike = _without_numbers("\n".join(some)).split(b"\n")
            if len(alike) != len(some):  # a name has a line break
                alike = [_without_numbers(name) for name in some]
            for name, key in zip(some, alike, strict=True):
                says_nothing = self._says_nothing.get(key)
                if says_nothing is None:
                    says_nothing = self._learn(name, key)
                if not says_nothing:
                    yield name

    def _learn(self, name: str, key: bytes) -> bool:
        suggested = _SOUNDS_LIKE.search(name) is not None or sounds_like_sequence(name)
        found = not suggested and not any(self._candidates(name))
        if len(self._says_nothing) >= _MOST_NAMES:
            self._says_nothing.clear()
        self._says_nothing[key] = found
        return found

    def stems(self, name: str) -> tuple[tuple[Family, str], ...]:
        found = self._stems.get(name)
        if found is None:
            candidates = tuple(self._candidates(name))
            if not candidates:  # most names; asking again costs less than remembering it
                return ()
            pairs = ((family, family.stem(name)) for family in candidates)
            found = tuple((family, stem) for family, stem in pairs if stem is not None)
            if len(self._stems) >= _MOST_NAMES:
                self._stems.clear()
            self._stems[name] = found
        return found


def _without_numbers(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass").translate(_SAME_DIGIT)


@lru_cache(maxsize=1)
def _names(chosen: str | None) -> _Names:
    """Use every known family, or only what --family states."""
    if chosen is None:
        return _Names(_tables)
    # --family replaces the absolute and reference families; families of other roles still apply.
    family = replace(family_named(chosen), models=(), named=None)
    rivals = (
        (Role.ABSOLUTE, Role.REFERENCE) if family.role in (Role.ABSOLUTE, Role.REFERENCE) else ()
    )
    return _Names(lambda name: (family, *(f for f in _tables(name) if f.role not in rivals)))


def _tables(name: str) -> Iterator[Family]:
    return (family for family in registry().candidates(name) if family.role is not Role.KERNEL)


def _match(
    tensor: TensorInfo, around: Surroundings, named: Sequence[tuple[Family, str]]
) -> tuple[Match | LeftAlone | None, list[str]]:
    objections: list[str] = []
    matches: list[Match] = []
    for family, stem in named:
        objection = family.objection(stem, around.tensors, tensor.shape)
        if not objection and family.role is Role.INERT and not matches:
            return LeftAlone(tensor, family), []
        layout = family.layout(tensor.shape, stem, around.tensors)
        if objection or layout is None:
            if family.role is not Role.MIXING:  # the names of layers suggest no table
                objections.append(f"not {family.name}: {objection}")
            continue
        matches.append(Match(tensor, family, stem, layout))
        if not family.must_be_claimed:
            break
    chosen = _claimed(matches, around)
    return chosen, [] if chosen is not None else objections


def _claimed(matches: Sequence[Match], around: Surroundings) -> Match | None:
    """Choose among families that match the same name: by a config, by the whole name, or the last.

    If a config names two of these families, it does not say which one the table belongs to.
    """
    types = {model.model_type for model in around.models}
    by_config = [match for match in matches if types & set(match.family.models)]
    if len(by_config) == 1:
        return by_config[0]
    by_name = (match for match in matches if match.family.claims(match.tensor.name))
    return next(by_name, next((m for m in matches if not m.family.must_be_claimed), None))


def require_one_geometry(originals: Mapping[str, str], located: Located) -> None:
    """Refuse a folder whose weight files are not copies of one another."""
    tables = {table.name: table for table in located.tables}
    for name, original in originals.items():
        mine, first = tables.get(name), tables.get(original)
        if mine is None or first is None:
            continue
        ours = (mine.grid, mine.prefix, mine.suffix)
        theirs = (first.grid, first.prefix, first.suffix)
        if ours != theirs:
            raise GeometryError(
                f"{name} is {mine.grid} with {mine.prefix} prefix rows, but {original} of the "
                f"first weight file is {first.grid} with {first.prefix}: these are not copies of "
                "one model.",
                hint="convert the files one by one.",
            )
