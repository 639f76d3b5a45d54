"""Names and shapes → position tables, near misses, and tables whose geometry is not determined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from resize_pos.containers.base import Container
from resize_pos.core.errors import GeometryError
from resize_pos.core.request import Request, as_lengths
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role, custom_family
from resize_pos.families.registry import family_named, registry
from resize_pos.families.tables import (
    LeftAlone,
    Located,
    NearMiss,
    PositionTable,
    Unsettled,
    is_all_text,
)
from resize_pos.planning.grid_solver import Geometry
from resize_pos.planning.join import joined_tables
from resize_pos.planning.rules import RULES
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.rules.patch_kernel import kernel_tables
from resize_pos.planning.sincos_detect import recognise_fixed

_SOUNDS_LIKE = re.compile(r"pos(?:ition|itional)?_?(?:emb|enc|bias|table)|rel_pos|wpe\b", re.I)

_GRIDS = frozenset({Role.ABSOLUTE, Role.REFERENCE})
_MOST_NAMES = 100_000  # some 30 MB


def locate_in(
    container: Container, request: Request, known: Mapping[str, Geometry] | None = None
) -> Located:
    """Find the position tables of an opened checkpoint, and check assumed squares.

    `known` is geometry that is recorded elsewhere, such as in a file made from this one.
    """
    from resize_pos.planning.value_checks import check_assumed_squares

    around = Surroundings.of(container, request)
    if known:
        around = replace(around, known={**known, **around.known})
    located = locate_tables(around)
    return check_assumed_squares(located, container.read)


def locate_tables(around: Surroundings) -> Located:
    """Find every position table of a checkpoint and determine its geometry."""
    names = _names(around.request.pattern, around.request.axes, around.request.family)
    matches: dict[Role, list[Match]] = {role: [] for role in RULES}
    near_misses: list[NearMiss] = []
    left_alone: list[LeftAlone] = []
    for tensor in around.tensors.values():
        named = names.stems(tensor.name)
        match, objections = _match(tensor, around, named) if named else (None, ())
        if isinstance(match, LeftAlone):
            left_alone.append(match)
        elif match is not None:
            matches[match.family.role].append(match)
        elif objections or _SOUNDS_LIKE.search(tensor.name):
            reason = "; ".join(objections) or "no family knows this name"
            near_misses.append(NearMiss(tensor, reason))
    pictured = bool(around.configs)  # ALIGN: a text table, and images for a convolution
    roles = [role for role, found in matches.items() if found]
    if not (pictured or around.many) and is_all_text(roles):
        around = replace(around, request=as_lengths(around.request))
    tables: dict[str, PositionTable] = {}
    unsettled: list[Unsettled] = []
    for role, rule in RULES.items():
        # A table that follows another one needs the geometry of that one first.
        for match in sorted(matches[role], key=lambda match: match.family.follows is not None):
            assert rule.settle is not None
            try:
                table = rule.settle(match, around, tables)
                tables[match.tensor.name] = recognise_fixed(table, around.read, around.peek)
            except GeometryError as error:
                unsettled.append(Unsettled(match.tensor, match.family, error))
    if around.request.also is not None:
        tables |= {table.name: table for table in joined_tables(around, tables)}
    if around.request.to_patch is not None:
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
    )


class _Names:
    """Which families match a name. Cached, because a model zoo repeats the same names."""

    def __init__(self, candidates: Callable[[str], Iterable[Family]]) -> None:
        self._candidates = candidates
        self._stems: dict[str, tuple[tuple[Family, str], ...]] = {}

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


@lru_cache(maxsize=1)
def _names(pattern: str | None, axes: str | None, chosen: str | None) -> _Names:
    """Use every known family, or only what --pattern and --axes or --family state."""
    if pattern is not None:
        custom = custom_family(pattern, axes)
        return _Names(lambda _: (custom,))
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
