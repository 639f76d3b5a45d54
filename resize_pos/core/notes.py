"""What a user should know about a conversion besides its tables."""

from __future__ import annotations

from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence for the report; a warning also makes the verdict `warn`."""

    text: str
    warning: bool = False
