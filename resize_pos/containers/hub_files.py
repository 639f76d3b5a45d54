"""Which files of a model on the hub are needed, and where they are read.

The revision is pinned to its commit with one request, which also lists all files. Files in the
cache of huggingface_hub are read there. Everything else is read by range
(`containers/remote/hub_store.py`), so weights that are not needed never move.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from resize_pos.containers.detect import FORMATS, WEIGHT_SUFFIXES, is_index
from resize_pos.containers.hub import HubModel
from resize_pos.containers.hub_errors import UNREACHABLE, explained, kinds
from resize_pos.containers.io.link_or_copy import require_bare
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote.hub_store import HubStore
from resize_pos.containers.remote.store import ObjectInfo, store_of
from resize_pos.containers.remote.traffic import count
from resize_pos.containers.remote.tree import forget, listed
from resize_pos.core.errors import ContainerError
from resize_pos.core.json_edit import parse

# Only one set of weights is used: the first name in this list that exists. The order is that of
# the table of formats, so safetensors come before pickles.
_NAMES = ("model", "pytorch_model", "open_clip_model", "open_clip_pytorch_model")
_WEIGHTS = tuple(
    name
    for row in FORMATS
    for suffix in row.suffixes[:1]
    for stem in _NAMES
    for name in (f"{stem}{suffix}", f"{stem}{suffix}.index.json")
)
_SMALL = re.compile(
    r".*\.(json|txt|md|model|py|jinja|ya?ml|tiktoken)|(LICENSE|NOTICE|USE_POLICY)[\w.]*", re.I
)


def hub_library(where: object) -> Any:
    """Import huggingface_hub, quiet unless somebody watches."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ContainerError(
            f"{where}: huggingface_hub is not installed.", "pip install huggingface_hub"
        ) from None
    if not sys.stderr.isatty():
        import_module("huggingface_hub.utils").disable_progress_bars()
    return hub


def locate(model: HubModel) -> Path:
    """Return where a model is read: a folder or file in the cache, or a URL of its commit."""
    hub = hub_library(model)
    try:
        count(1)
        info = hub.HfApi().model_info(model.repo, revision=model.revision, files_metadata=True)
    except Exception as error:
        cached = _cached(model) if kinds(error) & set(UNREACHABLE) else None
        if cached is not None:
            return cached
        raise explained(str(model), error) from error
    files = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    root = RemotePath("hf:", *f"{model.repo}@{info.sha}".split("/"))
    forget(root)
    store = store_of(root)
    assert isinstance(store, HubStore)
    pinned = replace(model, revision=info.sha)
    store.pin(root, {name: _described(pinned, one) for name, one in files.items()})
    wanted = model.path
    if wanted in files:
        needed = _beside(root, wanted, list(files))
    elif not wanted or any(name.startswith(f"{wanted}/") for name in files):
        needed = _in_folder(model, root, wanted, list(files))
    else:
        raise ContainerError(f"{model}: the repository has no such file.", _shown(files))
    return _in_cache(pinned, needed) or _pinned(store, root, pinned, needed, files)


def _pinned(
    store: HubStore,
    root: RemotePath,
    model: HubModel,
    needed: Sequence[str],
    files: Mapping[str, Any],
) -> Path:
    """Show only the needed files of a commit: other sets of weights are no part of the model."""
    store.pin(root, {name: _described(model, files[name], ask=True) for name in needed})
    forget(root)
    path = root / model.path if model.path else root
    listed(path if model.path not in files else path.parent)
    return path


def _described(model: HubModel, sibling: Any, *, ask: bool = False) -> ObjectInfo:
    """Describe a file by what the hub lists of it: its size, and the ETag it is served with."""
    size, stored = sibling.size, getattr(sibling, "lfs", None)
    etag = (stored and stored["sha256"]) or sibling.blob_id or ""
    if size is None and ask:  # a mirror that lists names only
        import huggingface_hub as hub

        count(1)
        url = hub.hf_hub_url(model.repo, sibling.rfilename, revision=model.revision)
        try:
            found = hub.get_hf_file_metadata(url)
        except Exception as error:
            raise explained(f"{model}/{sibling.rfilename}", error) from error
        size, etag = found.size, found.etag or ""
    return ObjectInfo(size or 0, etag)


def _in_folder(model: HubModel, root: RemotePath, folder: str, files: Sequence[str]) -> list[str]:
    """Return the files that make a folder of the repository a model."""
    before = f"{folder}/" if folder else ""
    inside = [name.removeprefix(before) for name in files if name.startswith(before)]
    weights = choose_weights(inside)
    if weights is None:
        raise ContainerError(f"{model}: holds no weights that can be converted.", _shown(inside))
    return [*_beside(root, before + weights, files)]


def _beside(root: RemotePath, weights: str, files: Sequence[str]) -> list[str]:
    """Return weights with their shards, and the small files in the same folder."""
    folder = weights.rpartition("/")[0]
    before = f"{folder}/" if folder else ""
    inside = [name.removeprefix(before) for name in files if name.startswith(before)]
    needed = [weights.removeprefix(before), *choose_others(inside)]
    if is_index(weights):
        needed += shard_names(root / weights, inside)
    return [before + name for name in dict.fromkeys(needed)]


def _shown(files: Iterable[str]) -> str:
    return f"There is: {', '.join(sorted(files)[:8]) or 'nothing'}."


def choose_weights(files: Sequence[str]) -> str | None:
    """Pick one set of weights from the files of a repository."""
    for name in _WEIGHTS:
        if name in files:
            return name
    for suffix in WEIGHT_SUFFIXES:
        found = sorted(n for n in files if n.endswith(suffix) and "/" not in n)
        if found:
            return found[0]
    return None


def choose_others(files: Iterable[str]) -> list[str]:
    """Pick the small files at the top: configs, processors, tokenizers, code, the card."""
    top = (name for name in files if "/" not in name)
    return sorted(n for n in top if _SMALL.fullmatch(n) and not is_index(n))


def shard_names(index: Path, files: Sequence[str]) -> list[str]:
    """Read the shard names from an index; each must be a file of the repository."""
    try:
        homes = parse(index.read_bytes())["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContainerError(f"{index.name}: is not an index of shards.") from error
    names = sorted({require_bare(home, index.name) for home in homes})
    missing = [name for name in names if name not in files]
    if missing:
        raise ContainerError(f"{index.name}: names {missing[0]}, which is not in the repository.")
    return names


def _in_cache(model: HubModel, needed: Sequence[str]) -> Path | None:
    """Return the model in the cache of huggingface_hub, if every needed file is there."""
    import huggingface_hub as hub

    folder: Path | None = None
    for name in needed:
        found = hub.try_to_load_from_cache(model.repo, name, revision=model.revision)
        if not isinstance(found, str):
            return None
        folder = Path(found).parents[name.count("/")]
    return folder and (folder / model.path if model.path else folder)


def _cached(model: HubModel) -> Path | None:
    """Find an earlier download: the newest snapshot of the revision that has weights."""
    import huggingface_hub as hub

    if model.path:
        names: tuple[str, ...] = (model.path, *(f"{model.path}/{name}" for name in _WEIGHTS))
    else:
        names = (*_WEIGHTS, "config.json", "open_clip_config.json")
    for name in names:
        found = hub.try_to_load_from_cache(model.repo, name, revision=model.revision)
        if isinstance(found, str):
            return Path(found) if name == model.path else Path(found).parent
    return None
