"""What errors of the hub mean, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from resize_pos.core.errors import ContainerError

LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may read it."
UNREACHABLE = ("OfflineModeIsEnabled", "ConnectError", "ConnectTimeout", "ConnectionError")

_CONNECTION = "Check the connection, HF_ENDPOINT and proxies"
_NO_CONNECTION = (
    "the hub cannot be reached, and it is not in the cache",
    f"{_CONNECTION}; or download it elsewhere.",
)

# By the name of the class, because the classes of huggingface_hub move between versions.
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "GatedRepoError": (
        "access to it is restricted (403)",
        f"Ask for access on its page on the hub first. {LOGIN}",
    ),
    "DisabledRepoError": ("the hub has disabled it (403)", "Look at its page on the hub."),
    "RevisionNotFoundError": (
        "there is no such revision (404)",
        "Name a branch, a tag or a commit after the @, or none for the main branch.",
    ),
    "RepositoryNotFoundError": (
        "there is no such repository, or it is private (401/404)",
        f"Check the spelling. {LOGIN}",
    ),
    "HFValidationError": ("that is not the name of a repository", "Write hf://ORG/NAME."),
    "OfflineModeIsEnabled": (
        "offline mode is on (HF_HUB_OFFLINE), and it is not in the cache",
        "Unset HF_HUB_OFFLINE once to download it.",
    ),
    "LocalEntryNotFoundError": _NO_CONNECTION,
    "ConnectError": _NO_CONNECTION,
}

# The header X-Error-Code of an answer → the class that huggingface_hub makes of it.
_CODES: Mapping[str, str] = {
    "GatedRepo": "GatedRepoError",
    "RepoNotFound": "RepositoryNotFoundError",
    "RevisionNotFound": "RevisionNotFoundError",
}


def kinds(error: BaseException) -> set[str]:
    """Return the names of an error's class and of the classes above it."""
    return {kind.__name__ for kind in type(error).__mro__}


def explained(where: str, error: Exception, what: str = "download") -> ContainerError:
    """Convert an error of huggingface_hub into ours."""
    found = kinds(error)
    if what != "download" and not found.isdisjoint(UNREACHABLE):  # the cache is no help here
        return ContainerError(f"{where}: the hub cannot be reached.", f"{_CONNECTION}.")
    for kind, (reason, hint) in _EXPLAINED.items():
        if kind in found:
            return ContainerError(f"{where}: {reason}.", hint)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return _denied(where, status)
    words = str(error).strip().splitlines()[:1] or [type(error).__name__]
    shown = re.sub(r"\?\S+", "?***", words[0])  # a signature may follow the ?
    return ContainerError(f"{where}: the {what} failed: {shown}")


def explained_answer(where: str, status: int, code: str) -> ContainerError:
    """Convert an answer of the hub into an error: its status and its X-Error-Code."""
    if code in _CODES:
        reason, hint = _EXPLAINED[_CODES[code]]
        return ContainerError(f"{where}: {reason}.", hint)
    if status in (401, 403):
        return _denied(where, status)
    return ContainerError(f"{where}: the hub answered {status}{' ' + code if code else ''}.")


def _denied(where: str, status: int) -> ContainerError:
    return ContainerError(f"{where}: the hub does not let you read it ({status}).", LOGIN)
