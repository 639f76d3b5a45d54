"""Is the window of a relative table the whole image, or one of many in it?"""

from __future__ import annotations

from collections.abc import Mapping

from resize_pos.core.errors import GeometryError
from resize_pos.families.tables import PositionTable
from resize_pos.planning.rules.base import Match, Surroundings
from resize_pos.planning.rules.window import (
    alike_everywhere,
    extra_rows,
    leader_of,
    read_root_patch,
    rule_of,
)
from resize_pos.planning.unknown_names.commands import name_regex

ONLY_A_WINDOW = "nothing shows that its window is the whole image, so it stays as a window"


def is_the_image(match: Match, around: Surroundings, settled: Mapping[str, PositionTable]) -> bool:
    """Look for evidence that a window is the image, where a family ties all of them to it.

    Evidence is a table of the same grid, a part for the class token, a config, an earlier
    conversion, or a patch embedding in the same module. One that stands further up belongs to a
    pyramid, whose windows do not grow with the image. Without any, the user decides.
    """
    rule, tensor, family = rule_of(match.family), match.tensor, match.family
    if rule.stage is not None or not family.patch or around.configs or tensor.name in around.known:
        return True
    if leader_of(match.stem, (rule.leader,) if rule.leader else (), settled) is not None:
        return True
    beside = any(match.stem + name in around.tensors for name in family.patch)
    if beside or extra_rows(tensor, match.layout, family.role) > 0:
        return True
    if read_root_patch(match, around) is None and not _is_pyramid(match, around):
        raise GeometryError(
            f"{tensor} has no patch embedding beside it, so nothing shows whether its window is "
            "the whole image.",
            hint="convert it with its own library, or pass --leave "
            f"'{name_regex(tensor.name, around.tensors)}' if its window does not follow the image.",
        )
    return False


def _is_pyramid(match: Match, around: Surroundings) -> bool:
    """Whether modules with different numbers of heads have such tables: stages of a pyramid."""
    tables = alike_everywhere(match.family, around)
    heads = {info.shape[-1] for infos in tables.values() for info in infos}
    return len(tables) > 1 and len(heads) > 1
