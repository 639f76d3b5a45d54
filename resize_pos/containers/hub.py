"""Addresses of models on the Hugging Face hub: `hf://org/name[@revision][/file]`."""

from __future__ import annotations

import re
from pathlib import Path

from resize_pos.containers.detect import WEIGHT_SUFFIXES
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

# As huggingface_hub writes it: a slash in the name of a branch is %2F, except in refs/pr/N and
# refs/convert/NAME. A path library turns hf:// into hf:/, so both are read.
_URL = (
    r"hf:/{1,2}(?P<repo>[\w.-]+(?:/[\w.-]+)?)"
    r"(?:@(?P<revision>refs/(?:pr/\d+|convert/[\w.-]+)|[\w.%-]+))?"
    r"(?:/(?P<path>[^\0]+))?"
)
_NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub at a revision, or a file or folder in it."""

    repo: str
    revision: str = "main"
    path: str = ""  # inside the repository; empty: all of it

    @property
    def name(self) -> str:
        """The name of the model without its owner, or of the file in it."""
        return (self.path or self.repo).rpartition("/")[2]

    def __str__(self) -> str:
        revision = self.revision
        if not revision.startswith("refs/"):
            revision = revision.replace("/", "%2F")
        at = "" if revision == "main" else f"@{revision}"
        return f"hf://{self.repo}{at}{'/' + self.path if self.path else ''}"


def is_hub_address(given: Path) -> bool:
    """Return whether a path is meant as an address on the hub."""
    return given.as_posix().startswith("hf:/")


def parse_hub(given: Path) -> HubModel | None:
    """Parse `hf://org/name[@revision][/file]`; return None for a local path."""
    if not is_hub_address(given):
        return None
    found = re.fullmatch(_URL, given.as_posix())
    if found is None or ".." in (found["path"] or "").split("/"):
        raise ContainerError(
            f"{given.as_posix()}: is not a model on the hub.",
            "Write hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/FILE.",
        )
    revision = (found["revision"] or "main").replace("%2F", "/").replace("%2f", "/")
    return HubModel(found["repo"], revision, (found["path"] or "").strip("/"))


def hub_name(given: Path) -> str | None:
    """Return `hf://org/name` for a path that reads like the name of a model on the hub."""
    text = given.as_posix()
    named = re.fullmatch(_NAME, text) and not text.endswith(WEIGHT_SUFFIXES)
    return f"hf://{text}" if named else None
