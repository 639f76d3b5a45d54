"""Count the requests of a run; a run on local files counts nothing and imports nothing for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Meter:
    """What this process had used when a run began."""

    before: Traffic | None  # None: nothing in the run is in a store

    @classmethod
    def of(cls, *paths: Path | None) -> Meter:
        """Begin to count, if one of these is in a store or on the hub."""
        if not any(isinstance(path, RemotePath) or _on_the_hub(path) for path in paths):
            return cls(None)
        from resize_pos.containers.remote.traffic import traffic

        return cls(traffic())

    def used(self) -> Traffic | None:
        """Return what the run has used."""
        if self.before is None:
            return None
        from resize_pos.containers.remote.traffic import traffic

        return traffic() - self.before


def _on_the_hub(path: Path | None) -> bool:
    return path is not None and path.parts[:1] == ("hf:",)
