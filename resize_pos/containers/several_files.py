"""Checkpoints in several files, each of which is a container of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PartsContainer(Container):
    """A checkpoint in several parts, each of which is a container of its own."""

    __slots__ = ()

    is_folder = True

    @property
    @abstractmethod
    def parts(self) -> Iterable[Container]:
        """The parts; the first one takes precedence."""
        raise NotImplementedError

    @abstractmethod
    def locate(self, name: str) -> tuple[Container, str]:
        """Return the part that holds a tensor, and the tensor's name there."""
        raise NotImplementedError

    @property
    def metadata(self) -> Mapping[str, str]:
        """The strings kept in the parts; the first part that has a key determines its value."""
        merged: dict[str, str] = {}
        for part in self.parts:
            merged = {**part.metadata, **merged}
        return merged

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers stored in the parts; the first part that has a name determines its value."""
        merged: dict[str, object] = {}
        for part in self.parts:
            merged = {**part.settings, **merged}
        return merged

    @property
    def fixed_settings(self) -> Mapping[str, str]:
        """Only a single file can be written with other settings."""
        merged: dict[str, str] = {}
        for part in self.parts:
            where = f"it is stored in {part.path.name}, which is part of a folder"
            reasons = {name: part.fixed_settings.get(name) or where for name in part.settings}
            merged = {**reasons, **merged}
        return merged

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        part, own = self.locate(self.info(name).name)
        return part.read(own)

    def rule_of(self, name: str) -> str | None:
        """Return the rule that all values of a tensor follow, whatever its shape."""
        part, own = self.locate(self.info(name).name)
        return part.rule_of(own)

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        part, own = self.locate(self.info(name).name)
        return part.peek(own, start, count)

    def check_with_reference(self) -> None:
        """Refuse a part that the reference implementation of its format would not read."""
        for part in self.parts:
            part.check_with_reference()
