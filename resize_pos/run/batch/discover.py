"""Folders, files, globs and URLs → checkpoints, each with its place below the output folder."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from resize_pos.containers.detect import (
    WEIGHT_SUFFIXES,
    is_distributed,
    is_index_of_weights,
)
from resize_pos.containers.io.remote_path import RemotePath, place, redacted
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

if TYPE_CHECKING:
    from resize_pos.containers.remote.store import Listing, ObjectInfo

# The plan for a single file also depends on the configs beside it.
BESIDE = ("config.json", "open_clip_config.json")

# Files that training writes beside a checkpoint, but which are not checkpoints.
_NO_CHECKPOINT = lazy_regex(
    r"(optimizer|scheduler|scaler|training_args|rng_state|random_states)[\w-]*\.\w+"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint, and where its copy belongs below the output folder."""

    source: Path  # a file, or a model folder
    place: Path  # relative


@dataclass(frozen=True, slots=True)
class Seen:
    """What the listing of a store says of a checkpoint."""

    bytes: int
    stamp: str  # sizes and ETags; empty if the store has no way to tell versions apart


@dataclass(slots=True)
class Discovery:
    """The checkpoints that a search found, and notes for the user."""

    found: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: dict[Path, Seen] = field(default_factory=dict)  # of those in a store
    listings: dict[RemotePath, Listing] = field(default_factory=dict)  # folders of single files
    configs: dict[RemotePath, dict[str, ObjectInfo] | None] = field(default_factory=dict)

    def beside(self, source: RemotePath) -> dict[str, ObjectInfo] | None:
        """Return what the listing says of a single file and the configs in its folder."""
        listing = self.listings.get(source.parent)
        if listing is None or source.name not in listing.files:
            return None
        from resize_pos.run.batch.store_search import neighbours

        if source.parent not in self.configs:
            self.configs[source.parent] = neighbours(listing)
        configs = self.configs[source.parent]
        return None if configs is None else {source.name: listing.files[source.name], **configs}

    def add(self, other: Discovery) -> None:
        """Add what another search found."""
        self.found += other.found
        self.notes += other.notes
        self.seen |= other.seen
        self.listings |= other.listings


def discover(words: Iterable[str], output_dir: Path) -> Discovery:
    """Find checkpoints; the output folder is never searched.

    The tree below a folder is mirrored. For a glob, this is the tree below its fixed beginning.
    """
    result = Discovery()
    for word in words:
        before = len(result.found)
        if isinstance(place(word), RemotePath):
            from resize_pos.run.batch.store_search import search

            result.add(search(word, output_dir))
        else:
            for path, root in _expand(word):
                result.found += _below(path, root, output_dir, result.notes)
        if len(result.found) == before:
            kind = "matches nothing" if glob.has_magic(word) else "holds no checkpoint"
            result.notes.append(f"{redacted(word)}: {kind}.")
    result.found = list(dict.fromkeys(result.found))
    return result


def is_model_folder(names: Iterable[str]) -> bool:
    """Whether a folder with these file names is one checkpoint, not a folder of several."""
    present = set(names)
    if is_distributed(present) or any(is_index_of_weights(name) for name in present):
        return True
    return not present.isdisjoint(BESIDE) and any(is_weights(name) for name in present)


def is_weights(name: str) -> bool:
    """Return whether a file with this name is taken for a checkpoint."""
    hidden = name.startswith(".")
    return not hidden and name.endswith(WEIGHT_SUFFIXES) and not _NO_CHECKPOINT.fullmatch(name)


def size_of(source: Path) -> int:
    """Return the bytes of a checkpoint; files that cannot be read count as 0."""
    total = 0
    with contextlib.suppress(OSError):
        if not source.is_dir():
            return source.stat().st_size
        for folder, _, names in os.walk(source):
            for name in names:
                with contextlib.suppress(OSError):
                    total += Path(folder, name).stat().st_size
    return total


def _expand(word: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield the paths that an argument names, and the folder below which the tree is mirrored."""
    path = Path(word)
    if os.path.lexists(path) or not glob.has_magic(word):
        yield path, None
        return
    parts = path.parts
    fixed = next(n for n, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:fixed])
    # Path.glob refuses patterns that begin at the root, and it includes hidden files.
    for match in sorted(glob.glob(word, recursive=True)):  # noqa: PTH207
        if Path(match).is_dir() or is_weights(Path(match).name):
            yield Path(match), root


def _below(path: Path, root: Path | None, output_dir: Path, notes: list[str]) -> Iterator[Found]:
    if not path.is_dir():
        yield Found(path, Path(path.name) if root is None else path.relative_to(root))
        return
    seen: set[tuple[int, int]] = set()
    if not isinstance(output_dir, RemotePath):
        with contextlib.suppress(OSError):
            status = output_dir.stat()
            seen.add((status.st_dev, status.st_ino))
    for source in _walk(path, seen, notes):
        if root is not None:
            yield Found(source, source.relative_to(root))
        elif source == path:  # the named folder is itself a checkpoint
            yield Found(source, Path(source.resolve().name))
        else:
            yield Found(source, source.relative_to(path))


def _walk(folder: Path, seen: set[tuple[int, int]], notes: list[str]) -> Iterator[Path]:
    """Walk a folder in order. Links are followed, but no folder is entered twice."""
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        notes.append(f"{folder}: cannot be read: {error.strerror}.")
        return
    files = [entry.name for entry in entries if entry.is_file()]
    if is_model_folder(files):
        yield folder
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(folder / entry.name, seen, notes)
        elif is_weights(entry.name) and entry.is_file():
            yield folder / entry.name
