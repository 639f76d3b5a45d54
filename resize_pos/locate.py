"""Names and shapes → position tables, near misses, and tables whose geometry is not settled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from resize_pos.errors import GeometryError
from resize_pos.families import Family, Role, custom_family, family_named, known_families
from resize_pos.request import Request
from resize_pos.rules import RULES
from resize_pos.rules.base import Match, Surroundings
from resize_pos.tables import Located, NearMiss, PositionTable, Unsettled
from resize_pos.tensors import TensorInfo

_SOUNDS_LIKE = re.compile(r"pos(?:ition|itional)?_?(?:emb|enc|bias|table)|rel_pos|wpe\b", re.I)


def locate_tables(around: Surroundings) -> Located:
    """Find every position table of a checkpoint and settle its geometry."""
    families = _eligible(around.request)
    matches: dict[Role, list[Match]] = {role: [] for role in RULES}
    near_misses: list[NearMiss] = []
    for tensor in around.tensors.values():
        match, objections = _match(tensor, around.tensors, families)
        if match is not None:
            matches[match.family.role].append(match)
        elif objections or _SOUNDS_LIKE.search(tensor.name):
            reason = "; ".join(objections) or "no family knows this name"
            near_misses.append(NearMiss(tensor, reason))
    tables: dict[str, PositionTable] = {}
    unsettled: list[Unsettled] = []
    for role, rule in RULES.items():
        for match in matches[role]:
            try:
                tables[match.tensor.name] = rule.settle(match, around, tables)
            except GeometryError as error:
                unsettled.append(Unsettled(match.tensor, match.family, error))
    ordered = tuple(tables[name] for name in around.tensors if name in tables)
    return Located(ordered, tuple(unsettled), tuple(near_misses))


def _eligible(request: Request) -> tuple[Family, ...]:
    if request.pattern is not None and request.axes is not None:
        return (custom_family(request.pattern, request.axes),)
    if request.family is not None:
        # --family settles which absolute family a name belongs to; the other roles stay known.
        others = (family for family in known_families() if family.role is not Role.ABSOLUTE)
        return (family_named(request.family), *others)
    return known_families()


def _match(
    tensor: TensorInfo, tensors: Mapping[str, TensorInfo], families: Sequence[Family]
) -> tuple[Match | None, list[str]]:
    objections = []
    for family in families:
        stem = family.stem(tensor.name)
        if stem is None:
            continue
        objection = family.objection(stem, tensors, tensor.shape)
        layout = family.layout(tensor.shape)
        if not objection and layout is not None:
            return Match(tensor, family, stem, layout), []
        objections.append(f"not {family.name}: {objection}")
    return None, objections
