"""Files of models on the hub, read by range.

A path is `hf://org/name@COMMIT/file`. What a commit holds never changes, so sizes and checksums are
those of its listing. The hub redirects a large file to another server with a signed address. That
address is kept and used for later ranges, until it expires.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.hub_errors import explained_answer
from resize_pos.containers.remote.store import (
    Listing,
    ObjectInfo,
    Store,
    changed,
    require_range,
    stated_size,
)
from resize_pos.containers.remote.web import REDIRECTS, ask, body
from resize_pos.core.errors import ContainerError

if TYPE_CHECKING:
    from resize_pos.containers.io.remote_path import RemotePath

_BLOCK = 1 << 20
_MOST_REDIRECTS = 5
_EXPIRED = frozenset({400, 401, 403, 404, 410})  # of a signed address


class HubStore(Store):
    """The hub: commits that were listed once, and the files in them."""

    def __init__(self, scheme: str) -> None:
        del scheme
        self._commits: dict[RemotePath, dict[str, ObjectInfo]] = {}
        self._signed: dict[RemotePath, str] = {}  # where the hub redirects a file to
        self._etags: dict[RemotePath, str] = {}  # of the server that sends the bytes
        self._local: dict[RemotePath, Path | None] = {}  # files in the cache of huggingface_hub

    def pin(self, root: RemotePath, files: Mapping[str, ObjectInfo]) -> None:
        """Keep what the hub listed of a commit: its files by their names."""
        self._commits[root] = dict(files)

    def info(self, path: RemotePath) -> ObjectInfo | None:
        """Describe a file; None: there is none."""
        root, name = self._split(path)
        return self._commits.get(root, {}).get(name)

    def open_range(
        self, path: RemotePath, info: ObjectInfo, offset: int, length: int
    ) -> Iterator[bytes]:
        """Read a range block by block; a file in the cache needs no request."""
        local = self._cached(path, info)
        if local is not None:
            yield from _local_range(local, offset, length)
            return
        with self._ask(path, info, {"Range": f"bytes={offset}-{offset + length - 1}"}) as answer:
            if answer.status != 206 and not (offset == 0 and length == info.size):
                raise ContainerError(
                    f"{path}: the server does not read ranges of files.", "Download the file first."
                )
            if answer.status == 206:
                require_range(path, answer.headers.get("Content-Range", ""), offset, info.size)
            etag = _etag(answer.headers)
            if self._etags.setdefault(path, etag) != etag:
                raise changed(path)
            yield from body(answer, length)

    def page(self, path: RemotePath) -> Listing:
        """List one level below a name."""
        files: dict[str, ObjectInfo] = {}
        folders: dict[str, None] = {}
        for name, info in self.walk(path):
            first, slash, _ = name.partition("/")
            if slash:
                folders[first] = None
            else:
                files[name] = info
        return Listing(tuple(folders), files)

    def walk(self, path: RemotePath) -> Iterator[tuple[str, ObjectInfo]]:
        """List every file below a name, by its relative name."""
        root, folder = self._split(path)
        before = f"{folder}/" if folder else ""
        for name, info in self._commits.get(root, {}).items():
            if name.startswith(before):
                yield name.removeprefix(before), info

    def _split(self, path: RemotePath) -> tuple[RemotePath, str]:
        """Split a path into the root of its commit and the name in it."""
        for root in (*reversed(path.parents), path):
            if "@" in root.name:  # a repository's own name has none
                return root, "" if root == path else path.relative_to(root).as_posix()
        return path, ""

    def _cached(self, path: RemotePath, info: ObjectInfo) -> Path | None:
        if path not in self._local:
            import huggingface_hub as hub

            root, name = self._split(path)
            repo, _, commit = str(root).removeprefix("hf://").rpartition("@")
            found = hub.try_to_load_from_cache(repo, name, revision=commit)
            local = Path(found) if isinstance(found, str) else None
            whole = local is not None and local.stat().st_size == info.size
            self._local[path] = local if whole else None
        return self._local[path]

    def _ask(self, path: RemotePath, info: ObjectInfo, headers: Mapping[str, str]) -> Any:
        signed = self._signed.get(path)
        if signed is not None:
            answer = ask(signed, headers)
            if answer.status not in _EXPIRED:
                return _require_success(path, answer)
            answer.close()
            del self._signed[path]
        return self._resolve(path, info, headers)

    def _resolve(self, path: RemotePath, info: ObjectInfo, headers: Mapping[str, str]) -> Any:
        """Ask the hub for a file and follow its redirects; the token stays with the hub."""
        import huggingface_hub as hub
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        root, name = self._split(path)
        repo, _, commit = str(root).removeprefix("hf://").rpartition("@")
        url = hub.hf_hub_url(repo, name, revision=commit)
        home = _origin(url)
        own = {**headers, **{key: str(value) for key, value in build_hf_headers().items()}}
        secret = next((own.pop(key) for key in list(own) if key.lower() == "authorization"), "")
        for _ in range(_MOST_REDIRECTS):
            at_home = _origin(url) == home
            answer = ask(
                url, own if at_home else headers, secret=secret if at_home else "", follow=False
            )
            if at_home and _differs(info, commit, answer.headers):
                answer.close()
                raise changed(path)
            if answer.status not in REDIRECTS:
                if not at_home:
                    self._signed[path] = url
                return _require_success(path, answer)
            answer.close()
            url = urllib.parse.urljoin(url, answer.headers.get("Location", ""))
            if not url.startswith(("http://", "https://")):
                raise ContainerError(f"{path}: the hub redirects to another kind of address.")
        raise ContainerError(f"{path}: the hub redirects in a circle.")


def _local_range(local: Path, offset: int, length: int) -> Iterator[bytes]:
    with local.open("rb") as file:
        file.seek(offset)
        while length > 0 and (block := file.read(min(_BLOCK, length))):
            length -= len(block)
            yield block


def _require_success(path: RemotePath, answer: Any) -> Any:
    if answer.status in (200, 206):
        return answer
    answer.close()
    if answer.status in (412, 416):
        raise changed(path)
    raise explained_answer(str(path), answer.status, answer.headers.get("X-Error-Code", ""))


def _differs(info: ObjectInfo, commit: str, headers: Mapping[str, str]) -> bool:
    """Return whether what the hub says of a file differs from the listing of its commit."""
    linked = headers.get("X-Linked-ETag") or headers.get("ETag")
    size = stated_size(headers.get("X-Linked-Size", ""))
    return bool(
        (linked and info.identity and _bare(linked) != info.identity)
        or (size is not None and size != info.size)
        or headers.get("X-Repo-Commit", commit) != commit
    )


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _etag(headers: Mapping[str, str]) -> str:
    return _bare(headers.get("ETag") or headers.get("Last-Modified") or "")


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')
