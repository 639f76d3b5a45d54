"""Whether a verdict says what is wrong with a table."""

from __future__ import annotations

from resize_pos.quality.checks import Level
from resize_pos.verify.against_source import TableVerification

NAMES = (
    *("re-initialised", "all zero", "constant", "shuffled", "scaled?", "prefix or suffix rows"),
    *("another checkpoint's", "swapped", "mirrored", "cropped", "Noise was added"),
    *("do not follow the source's", "its cells were blurred", "sharpened or scaled"),
)


def is_named(found: TableVerification) -> bool:
    """Whether the verdict says what is wrong: a mistake by name, or which part is what."""
    if found.diagnosis is not None:
        return True
    said = " ".join(check.detail for check in found.checks if check.level is not Level.OK)
    return any(word in said for word in NAMES)
