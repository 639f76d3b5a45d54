"""One entry of a checkpoint seen by itself: its tensors without the name of the entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.base import Container, Copied
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Entry(Container):
    """The tensors below a prefix such as `state_dict.`; they are read, not written."""

    inner: Container
    prefix: str
    tensors: Mapping[str, TensorInfo] = field(repr=False)

    @classmethod
    def of(cls, container: Container, prefix: str) -> Entry:
        """View the tensors whose names begin with the prefix."""
        inside = {
            name.removeprefix(prefix): info
            for name, info in container.tensors.items()
            if name.startswith(prefix)
        }
        own = {name: TensorInfo(name, info.shape, info.dtype) for name, info in inside.items()}
        return cls(container, prefix, own)

    @property
    def path(self) -> Path:
        """Where the checkpoint lies."""
        return self.inner.path

    @property
    def format(self) -> str:
        """What kind of file it is, in words for a person."""
        return self.inner.format

    @property
    def metadata(self) -> Mapping[str, str]:
        """Free-form strings kept in the file."""
        return self.inner.metadata

    @property
    def config_folder(self) -> Path:
        """The folder in which configs that describe the checkpoint are looked for."""
        return self.inner.config_folder

    @property
    def settings(self) -> Mapping[str, object]:
        """Numbers stored beside the tensors that may state a size or a length, by name."""
        return self.inner.settings

    @property
    def image_sizes(self) -> Mapping[str, Size]:
        """The image sizes that the file itself states."""
        return self.inner.image_sizes

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor in its stored dtype."""
        return self.inner.read(self.prefix + self.info(name).name)

    def peek(self, name: str, start: int, count: int) -> bytes:
        """Read `count` little-endian bytes of a tensor, from its byte `start` on."""
        return self.inner.peek(self.prefix + self.info(name).name, start, count)

    def rule_of(self, name: str) -> str | None:
        """Return the rule that all values of a tensor follow; None: no rule."""
        return self.inner.rule_of(self.prefix + self.info(name).name)

    def output_bytes(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Refuse: an entry is only read."""
        del shapes
        raise ContainerError(f"{self.path.name}: a single entry cannot be written.")

    def write(
        self, stage: Path, changes: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> Copied:
        """Refuse: an entry is only read."""
        del stage, changes, metadata
        raise ContainerError(f"{self.path.name}: a single entry cannot be written.")
