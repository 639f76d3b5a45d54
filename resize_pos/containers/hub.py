"""Checkpoints on the Hugging Face hub, as `hf://org/name[@revision]`.

huggingface_hub does the download, the cache, tokens and offline mode. This module decides which
files are needed, and says what an error means.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from resize_pos.containers.detect import FORMATS, WEIGHT_SUFFIXES, is_index
from resize_pos.containers.io.link_or_copy import require_bare
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import parse

# A path library turns hf:// into hf:/, so both are read.
_URL = re.compile(r"hf:/{1,2}(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

# Only one set of weights is downloaded: the first name in this list that exists. The order is that
# of the table of formats, so safetensors come before pickles.
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

# What each error of huggingface_hub means. By name, because its classes move between versions.
_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may read it."
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "GatedRepoError": (
        "access to it is restricted (403)",
        f"Ask for access on its page on the hub first. {_LOGIN}",
    ),
    "DisabledRepoError": ("the hub has disabled it (403)", "Look at its page on the hub."),
    "RevisionNotFoundError": (
        "there is no such revision (404)",
        "Name a branch, a tag or a commit after the @, or none for the main branch.",
    ),
    "RepositoryNotFoundError": (
        "there is no such repository, or it is private (401/404)",
        f"Check the spelling. {_LOGIN}",
    ),
    "HFValidationError": ("that is not the name of a repository", "Write hf://ORG/NAME."),
    "OfflineModeIsEnabled": (
        "offline mode is on (HF_HUB_OFFLINE), and it is not in the cache",
        "Unset HF_HUB_OFFLINE once to download it.",
    ),
    "LocalEntryNotFoundError": (
        "the hub cannot be reached, and it is not in the cache",
        "Check the connection, HF_ENDPOINT and proxies; or download it elsewhere.",
    ),
    "ConnectError": (
        "the hub cannot be reached, and it is not in the cache",
        "Check the connection, HF_ENDPOINT and proxies; or download it elsewhere.",
    ),
}
_UNREACHABLE = ("OfflineModeIsEnabled", "ConnectError", "ConnectTimeout", "ConnectionError")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub at a revision."""

    repo: str
    revision: str = "main"

    @property
    def name(self) -> str:
        """The model's name, without its owner."""
        return self.repo.rpartition("/")[2]

    def __str__(self) -> str:
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf://{self.repo}{at}"


def parse_hub(given: Path) -> HubModel | None:
    """Parse `hf://org/name[@revision]`; return None for a local path."""
    text = given.as_posix()
    if not text.startswith("hf:/"):
        return None
    found = _URL.fullmatch(text)
    if found is None:
        raise ContainerError(
            f"{text}: is not a model on the hub.", "Write hf://ORG/NAME or hf://ORG/NAME@REVISION."
        )
    return HubModel(found["repo"], found["revision"] or "main")


def hub_name(given: Path) -> str | None:
    """Return `hf://org/name` for a path that reads like the name of a model on the hub."""
    text = given.as_posix()
    named = _NAME.fullmatch(text) and not text.endswith(WEIGHT_SUFFIXES)
    return f"hf://{text}" if named else None


def fetch(model: HubModel) -> Path:
    """Download the needed files that are not in the cache; return their folder."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ContainerError(
            f"{model}: huggingface_hub is not installed.", "pip install huggingface_hub"
        ) from None
    if not sys.stderr.isatty():
        import_module("huggingface_hub.utils").disable_progress_bars()
    try:
        info = hub.HfApi().model_info(model.repo, revision=model.revision)
        files = [sibling.rfilename for sibling in info.siblings or ()]
    except Exception as error:
        cached = _cached(model) if _kinds(error) & set(_UNREACHABLE) else None
        if cached is not None:
            return cached
        raise _explained(model, error) from error
    weights = choose_weights(files)
    if weights is None:
        shown = ", ".join(sorted(files)[:8]) or "nothing"
        raise ContainerError(
            f"{model}: holds no weights that can be converted.", f"There is: {shown}."
        )
    folder = _download(model, weights)
    needed = choose_others(files)
    if is_index(weights):
        needed += shard_names(folder / weights, files)
    for name in needed:
        folder = _download(model, name)
    return folder


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


def _download(model: HubModel, name: str) -> Path:
    import huggingface_hub as hub

    try:
        return Path(hub.hf_hub_download(model.repo, name, revision=model.revision)).parent
    except Exception as error:
        raise _explained(model, error, name) from error


def _cached(model: HubModel) -> Path | None:
    """Find an earlier download: the newest snapshot of the revision that has weights."""
    import huggingface_hub as hub

    for name in (*_WEIGHTS, "config.json", "open_clip_config.json"):
        found = hub.try_to_load_from_cache(model.repo, name, revision=model.revision)
        if isinstance(found, str):
            return Path(found).parent
    return None


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _explained(model: HubModel, error: Exception, name: str | None = None) -> ContainerError:
    where = f"{model}/{name}" if name else str(model)
    kinds = _kinds(error)
    for kind, (reason, hint) in _EXPLAINED.items():
        if kind in kinds:
            return ContainerError(f"{where}: {reason}.", hint)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return ContainerError(f"{where}: the hub does not let you read it ({status}).", _LOGIN)
    words = str(error).strip().splitlines()[:1] or [type(error).__name__]
    return ContainerError(f"{where}: the download failed: {words[0]}")
