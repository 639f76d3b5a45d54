"""The one exception base. The command line turns it into words and an exit code, in one place."""

from __future__ import annotations


class ResizePosError(Exception):
    """Something could not be done: what, where and the numbers; `hint` says how to go on."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ResizePosError):
    """The request itself is not valid (a malformed size, two flags that exclude each other)."""

    exit_code = 2


class ContainerError(ResizePosError):
    """A file is missing, unreadable, malformed, or of a format we cannot rewrite safely."""


class GeometryError(ResizePosError):
    """A grid, a prefix or a patch size does not fit, or more than one answer does."""


class TableError(ResizePosError):
    """A position table cannot be transferred: wrong dtype, not finite, or unknown."""


class OutputError(ResizePosError):
    """The target cannot be written, or what was written is not what was planned."""
