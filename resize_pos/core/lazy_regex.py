"""Regular expressions that are compiled when they are first used.

Compiling one takes 0.1 to 0.6 ms. A run uses few of those that its modules define.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

__all__ = ["lazy_regex"]


class _LazyRegex:
    """Stands for a compiled expression. Each of its methods is looked up once."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source: Final = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        self.__dict__[name] = value  # later uses cost as much as with a compiled expression
        return value


if TYPE_CHECKING:
    lazy_regex = re.compile
else:

    def lazy_regex(pattern: str, flags: int = 0) -> _LazyRegex:
        """Do what `re.compile` does; a mistake in the pattern is raised by its first use."""
        return _LazyRegex(pattern, flags)
