"""Models whose layers, and not only their lengths, depend on the size of the image."""

from __future__ import annotations

import re

from resize_pos.core.errors import TableError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.families.family import name_pattern
from resize_pos.families.tables import Located

# A generator's layer from features to colours, one for each size: dec.0.toRGB, to_rgbs.1.
_TO_COLOURS = lazy_regex(r"(?:^|[._])to_?rgbs?(?:\.\d+)?(?=[._])", re.IGNORECASE)


def require_fixed_layers(located: Located, request: Request) -> None:
    """Refuse a generator that puts out an image at each of its sizes: dec.0.toRGB, dec.1.toRGB."""
    leave = None if request.leave is None else name_pattern("--leave", *request.leave)
    found: dict[str, str] = {}
    for name in located.others:
        shown = _TO_COLOURS.search(name)
        if shown is not None and not (leave is not None and leave.search(name)):
            found.setdefault(name[: shown.end()], name)
    if len(found) > 1:
        names = " and ".join(list(found.values())[:2])
        raise TableError(
            f"{names} put out images of several sizes, so the model for another size has other "
            "layers.",
            hint="convert it with its own library, or pass --leave '[tT]o_?[rR][gG][bB]' if its "
            "code keeps these layers.",
        )
