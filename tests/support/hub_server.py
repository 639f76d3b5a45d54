"""A small hub on this machine: its API, its redirects to a second server, and its uploads.

Like the real one, it lists the files of a commit, sends small files itself, and redirects large
ones to another origin with a signed address. That origin reads ranges and counts what it sends.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = (".safetensors", ".bin", ".npz", ".pt", ".pth", ".h5", ".onnx")


class Server(ThreadingHTTPServer):
    """A server with what it was asked for and what it has sent."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.asked: list[str] = []
        self.sent = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Keep quiet when a client hangs up."""


class Storage(Server):
    """The other origin: large files by their signed address, and uploads."""

    def __init__(self) -> None:
        super().__init__(StorageHandler)
        self.files: dict[str, Path] = {}
        self.uploaded: dict[str, bytes] = {}
        self.secrets: list[str] = []  # tokens that should not have been sent here
        self.before: Callable[[int], None] = lambda *_: None
        self.fault: Callable[[int], str | None] = lambda *_: None  # expired, busy or cut


class Hub(Server):
    """Repositories as folders, each under the name that asks for it."""

    def __init__(self) -> None:
        super().__init__(HubHandler)
        self.storage = Storage()
        self.repositories: dict[str, Path] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.gated: set[str] = set()  # everybody may list these, nobody may read them
        self.private: dict[str, str] = {}  # the token that each needs
        self.with_sizes = True  # a mirror may list names only
        self.commits: list[dict[str, Any]] = []
        self.created: list[dict[str, Any]] = []

    @property
    def endpoint(self) -> str:
        return self.url

    @property
    def requests(self) -> int:
        return len(self.asked) + len(self.storage.asked)

    def clear(self) -> None:
        """Forget what was asked."""
        for server in (self, self.storage):
            server.asked.clear()
            server.sent = 0


class Handler(BaseHTTPRequestHandler):
    """Answers in one piece."""

    server: Any

    def log_message(self, *_: object) -> None:
        pass

    def send(
        self, data: bytes, headers: dict[str, str], status: int = 200, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            part = data[: len(data) // 2] if cut else data
            with self.server.lock:  # before the answer: its reader may compare at once
                self.server.sent += len(part)
            with contextlib.suppress(OSError):
                self.wfile.write(part)

    def send_range(self, data: bytes, headers: dict[str, str], cut: bool = False) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None:
            self.send(data, headers, cut=cut)
            return
        part = data[int(found[1]) : int(found[2]) + 1]
        last = int(found[1]) + len(part) - 1
        content = {"Content-Range": f"bytes {found[1]}-{last}/{len(data)}"}
        self.send(part, {**headers, **content}, 206, cut)

    def refuse(self, status: int, code: str = "") -> None:
        self.send(b"", {"X-Error-Code": code, "X-Error-Message": code}, status)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_request_of(self, path: str) -> int:
        with self.server.lock:
            self.server.asked.append(f"{self.command} {path}")
            return len(self.server.asked)


class StorageHandler(Handler):
    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        number = self.log_request_of(f"{path} {self.headers.get('Range', '')}")
        self.server.before(number)
        fault = self.server.fault(number)
        if "Authorization" in self.headers:
            self.server.secrets.append(self.headers["Authorization"])
        if fault == "expired" or "Signature=" not in query:
            self.refuse(403)
        elif fault == "busy":
            self.refuse(503)
        else:
            data = self.server.files[unquote(path)].read_bytes()
            etag = hashlib.md5(data).hexdigest()  # not the ETag that the hub states
            self.send_range(data, {"ETag": f'"{etag}"'}, cut=fault == "cut")

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        path = self.path.partition("?")[0]
        self.log_request_of(path)
        self.server.uploaded[path.rpartition("/")[2]] = self.body()
        self.send(b"", {})


class HubHandler(Handler):
    server: Hub

    def do_GET(self) -> None:
        path = unquote(self.path.split("?")[0]).strip("/")
        self.log_request_of(path)
        cached = path.startswith("api/resolve-cache/")
        name = path.removeprefix("api/resolve-cache/").removeprefix("api/models/")
        repo, rest = "/".join(name.split("/")[:2]), name.split("/")[2:]
        hub = self.server
        if repo in hub.refused:
            self.refuse(*hub.refused[repo])
        elif repo not in hub.repositories or not self._allowed(repo):
            self.refuse(404, "RepoNotFound")
        elif len(rest) > 1 and rest[1] not in ("main", "v1", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif path.startswith("api/models/"):
            self.send(json.dumps(self.describe(repo)).encode(), {})
        elif repo in hub.gated:
            self.refuse(403, "GatedRepo")
        else:
            self.send_file(repo, "/".join(rest[2:]), cached)

    do_HEAD = do_GET  # noqa: N815

    def _allowed(self, repo: str) -> bool:
        token = self.server.private.get(repo)
        return token is None or self.headers.get("Authorization") == f"Bearer {token}"

    def send_file(self, repo: str, name: str, cached: bool) -> None:
        file = self.server.repositories[repo] / name
        if not file.is_file():
            self.refuse(404, "EntryNotFound")
            return
        data = file.read_bytes()
        about = {"X-Repo-Commit": COMMIT}
        if name.endswith(_LARGE):
            place = f"/{repo}/{name}"
            self.server.storage.files[place] = file
            linked = {"X-Linked-ETag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
            signed = f"{self.server.storage.url}{place}?Expires=1&Signature=very-secret"
            self.send(b"", {**about, **linked, "Location": signed}, 302)
        elif name.endswith(".json") and not cached:
            other = {"X-Linked-Size": str(len(data)), "ETag": f'"{blob_id(data)}"'}
            where = f"/api/resolve-cache/{repo}/resolve/{COMMIT}/{name}"
            self.send(b"", {**about, **other, "Location": where}, 307)
        else:
            self.send_range(data, {**about, "ETag": f'W/"{blob_id(data)}"'})

    def describe(self, repo: str) -> dict[str, Any]:
        folder = self.server.repositories[repo]
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        siblings = [self.sibling(folder, name) for name in names]
        return {"_id": "1", "id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}

    def sibling(self, folder: Path, name: str) -> dict[str, Any]:
        if not self.server.with_sizes:
            return {"rfilename": name}
        data = (folder / name).read_bytes()
        found: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob_id(data)}
        if name.endswith(_LARGE):
            found["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
        return found

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        path = unquote(path).strip("/")
        data = self.body()
        self.log_request_of(path)
        if not self.headers.get("Authorization"):
            self.refuse(401)
        elif path == "api/repos/create":
            self.create(json.loads(data))
        elif path == "api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["path"].endswith(_LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for one in json.loads(data)["files"]
            ]
            self.answer({"files": files})
        elif path.endswith("info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.server.storage.url}/{one['oid']}"}}}
                for one in json.loads(data)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in path:
            self.commit(path, query, data)
        else:
            self.refuse(404)

    def create(self, document: dict[str, Any]) -> None:
        self.server.created.append(document)
        repo = f"{document['organization']}/{document['name']}"
        self.answer({"url": f"{self.server.url}/{repo}", "name": repo, "id": "2"})

    def commit(self, path: str, query: str, data: bytes) -> None:
        lines = [json.loads(line) for line in data.splitlines()]
        files: dict[str, bytes] = {}
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.server.storage.uploaded[value["oid"]]
        repo = "/".join(path.split("/")[2:4])
        self.server.commits.append(
            {"repo": repo, "query": query, "header": lines[0]["value"], "files": files}
        )
        done = {"commitUrl": f"{self.server.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT}
        if "create_pr=1" in query:
            done["pullRequestUrl"] = f"{self.server.url}/{repo}/discussions/7"
        self.answer(done)

    def answer(self, document: dict[str, Any]) -> None:
        self.send(json.dumps(document).encode(), {"Content-Type": "application/json"})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextlib.contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a hub and its storage."""
    with Hub() as hub, hub.storage as storage:
        threads = [
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            for server in (hub, storage)
        ]
        for thread in threads:
            thread.start()
        try:
            yield hub
        finally:
            for server in (hub, storage):
                server.shutdown()
            for thread in threads:
                thread.join()
