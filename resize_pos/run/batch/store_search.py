"""Search a store for checkpoints: its listing is treated like a tree of folders on a disk."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path

from resize_pos.containers.detect import WEIGHT_SUFFIXES, is_index
from resize_pos.containers.io.remote_path import RemotePath, place
from resize_pos.containers.remote.store import Listing, ObjectInfo, store_of
from resize_pos.core.errors import ContainerError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.run.batch.discover import (
    BESIDE,
    Discovery,
    Found,
    Seen,
    is_model_folder,
    is_weights,
)

_BAD_PARTS = ("", ".", "..")  # such a name cannot be mirrored as a path
_MOST_BESIDE = 200


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """One level of a listing."""

    path: RemotePath
    files: dict[str, ObjectInfo] = field(default_factory=dict)
    folders: dict[str, StoreFolder] = field(default_factory=dict)

    def objects(self, before: str = "") -> Iterator[tuple[str, ObjectInfo]]:
        """List every object below, by its relative name."""
        for name, info in self.files.items():
            yield before + name, info
        for name, folder in self.folders.items():
            yield from folder.objects(f"{before}{name}/")

    def below(self, parts: Iterable[str]) -> StoreFolder | None:
        """Return a folder below this one."""
        node: StoreFolder | None = self
        for part in parts:
            node = None if node is None else node.folders.get(part)
        return node


def search(word: str, output_dir: Path) -> Discovery:
    """Find the checkpoints that one URL names: an object, a folder or a glob."""
    path = place(word)
    assert isinstance(path, RemotePath)
    if not store_of(path).can_list:
        return _on_a_web_server(path, word)
    parts = path.parts
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    result = Discovery()
    if fixed < len(parts):
        root = RemotePath(*parts[:fixed])
        top = _tree(root, result.notes)
        for found in sorted(_matching(top, parts[fixed:])):
            node = top.below(found)
            if node is not None:
                _add(result, _walk(node, output_dir), root)
            elif is_weights(found[-1]):
                folder = top.below(found[:-1])
                assert folder is not None
                _add(result, [(folder, found[-1])], root)
        return result
    top = _tree(path, result.notes)
    if top.files or top.folders:
        _add(result, _walk(top, output_dir), path)
    else:
        _add_object(result, path)
    return result


def _on_a_web_server(path: RemotePath, word: str) -> Discovery:
    """Accept one file: a web server has no listing."""
    if word.endswith("/") or not (path.name.endswith(WEIGHT_SUFFIXES) or is_index(path.name)):
        raise UsageError(
            f"{path}: a web server does not list its files, so it cannot be searched.",
            hint="name each file of weights, or list them in a --manifest.",
        )
    where = Path(path.parent.name if is_index(path.name) else path.name)
    result = Discovery([Found(path, where)])
    try:
        info = store_of(path).info(path)
    except ContainerError:  # its job says why
        info = None
    if info is not None:
        result.seen[path] = Seen(info.size, _words(info) if info.identity else "")
    return result


def _tree(path: RemotePath, notes: list[str]) -> StoreFolder:
    """List everything below a name, as a tree."""
    top = StoreFolder(path)
    try:
        for name, info in store_of(path).walk(path):
            *folders, last = parts = name.split("/")
            if any(part in _BAD_PARTS for part in parts):
                notes.append(f"{path}: the object {name!r} was left out: its name is not a path.")
                continue
            node = top
            for folder in folders:
                if folder not in node.folders:
                    node.folders[folder] = StoreFolder(node.path / folder)
                node = node.folders[folder]
            node.files[last] = info
    except FileNotFoundError:
        raise ContainerError(f"{path}: there is no such bucket.", "Check the spelling.") from None
    return top


def _walk(node: StoreFolder, output_dir: Path) -> Iterator[tuple[StoreFolder, str]]:
    """Yield the checkpoints below a folder: the folder, and the file's name if it is a file."""
    if node.path == output_dir:
        return
    if is_model_folder(node.files):
        yield node, ""
        return
    for name in sorted({*node.files, *node.folders}):
        if name.startswith("."):
            continue
        if name in node.folders:
            yield from _walk(node.folders[name], output_dir)
        if name in node.files and is_weights(name):
            yield node, name


def _add(result: Discovery, found: Iterable[tuple[StoreFolder, str]], root: RemotePath) -> None:
    """Add checkpoints to a result, with what the listing says of them."""
    for node, name in found:
        source = node.path / name if name else node.path
        inside = source.parts[len(root.parts) :] or (source.name,)  # the named folder itself
        result.found.append(Found(source, Path(*inside)))
        if name:
            result.seen[source] = _seen_file(node.files[name], node.files)
            result.listings[node.path] = Listing(tuple(node.folders), node.files)
        else:
            result.seen[source] = Seen(*_seen_folder(node.objects()))


def _add_object(result: Discovery, path: RemotePath) -> None:
    store = store_of(path)
    info = store.info(path)
    if info is None:
        return
    beside = {path.name: info}
    for name in BESIDE:
        known = store.info(path.with_name(name))
        beside |= {} if known is None else {name: known}
    result.found.append(Found(path, Path(path.name)))
    result.seen[path] = _seen_file(info, beside)


def _seen_file(info: ObjectInfo, around: Mapping[str, ObjectInfo]) -> Seen:
    words = [_words(info)]
    words += [_words(around[name]) if name in around else "-" for name in BESIDE]
    return Seen(info.size, " ".join(words))


def _seen_folder(objects: Iterable[tuple[str, ObjectInfo]]) -> tuple[int, str]:
    size, lines = 0, []
    for name, info in objects:
        size += info.size
        lines.append(f"{name} {_words(info)}")
    return size, hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _words(info: ObjectInfo) -> str:
    return f"{info.size}:{info.identity}"


def stored_stamp(info: ObjectInfo | None, below: Iterable[tuple[str, ObjectInfo]] = ()) -> str:
    """Return the stamp of a target: one object, or the objects below its name; empty if none."""
    if info is not None:
        return _words(info)
    objects = list(below)
    return _seen_folder(objects)[1] if objects else ""


def neighbours(listing: Listing) -> dict[str, ObjectInfo] | None:
    """Return the files of a folder that a job may read beside its weights; None if too many."""
    found = {name: info for name, info in listing.files.items() if name.endswith(".json")}
    return found if len(found) <= _MOST_BESIDE else None


def _matching(top: StoreFolder, pattern: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the files and folders that a glob matches, by the parts of their relative names."""
    found: set[tuple[str, ...]] = set()

    def visit(node: StoreFolder, at: tuple[str, ...], rest: tuple[str, ...]) -> None:
        if not rest:
            return
        first, *more = rest
        left = tuple(more)
        if first == "**":
            visit(node, at, left)
            if not left:
                found.update((*at, name) for name in node.files if not name.startswith("."))
                found.update([at] if at else [])
            for name, folder in node.folders.items():
                if not name.startswith("."):
                    visit(folder, (*at, name), rest)
            return
        for name in {*node.files, *node.folders}:
            hidden = name.startswith(".") and not first.startswith(".")
            if hidden or not fnmatchcase(name, first):
                continue
            if not left:
                found.add((*at, name))
            elif name in node.folders:
                visit(node.folders[name], (*at, name), left)

    visit(top, (), tuple(pattern))
    return found
