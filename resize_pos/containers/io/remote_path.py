"""Paths that are URLs: objects in a store, read and written through `containers/remote/`.

`RemotePath` is a `Path`, so every container, check and report handles it like a local one. It is
made only by `place`. The packages of the stores are imported when a method needs them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

from resize_pos.core.lazy_regex import lazy_regex

SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "http", "https")

_URL = lazy_regex(rf"(?P<scheme>{'|'.join(SCHEMES)}):/{{1,2}}(?P<rest>.*)", re.DOTALL | re.I)
_WITH_SECRETS = ("http", "https")  # a query may be a signature; the name may hold a password

# Passwords and signatures of this process's URLs, by the URL without them. A path never contains
# them, so no message, report or ledger can.
_secrets: dict[str, tuple[str, str]] = {}


class RemotePath(type(Path())):  # type: ignore[misc]  # PosixPath or WindowsPath
    """The address of an object, or of a folder of objects, in a store."""

    __slots__ = ()

    def __str__(self) -> str:
        scheme, *rest = self.parts or (".",)
        if not scheme.endswith(":"):  # relative to another URL
            return "/".join((scheme, *rest))
        return f"{scheme}//{'/'.join(rest)}"

    def __fspath__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.parts, _secrets.get(str(self)))

    @property
    def scheme(self) -> str:
        """The kind of store."""
        return cast("str", self.parts[0]).removesuffix(":")

    @property
    def host(self) -> str:
        """The bucket, container or host name."""
        if len(self.parts) < 2:
            from resize_pos.core.errors import ContainerError

            raise ContainerError(
                f"{self}: names no bucket or server.", f"Write {self.scheme}://NAME/FILE."
            )
        return cast("str", self.parts[1])

    @property
    def key(self) -> str:
        """The name of the object in its bucket."""
        return "/".join(self.parts[2:])

    @property
    def secrets(self) -> tuple[str, str]:
        """The user (with a password) and the query of a web address; both may be empty."""
        return _secrets.get(str(self), ("", ""))

    def as_posix(self) -> str:
        """Return the URL."""
        return str(self)

    def is_absolute(self) -> bool:
        """A URL does not depend on the current folder."""
        return True

    def absolute(self) -> Self:
        """Return the same path."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """Return the same path: stores have no links."""
        del strict
        return self

    def is_symlink(self) -> bool:
        """Return False: stores have no links."""
        return False

    def samefile(self, other_path: str | os.PathLike[str]) -> bool:
        """Return whether the other path is the same address."""
        return self == other_path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Ask the store whether this is an object or a folder; raise `FileNotFoundError`."""
        del follow_symlinks
        from resize_pos.containers.remote.tree import folder_exists, object_info

        info = object_info(self)
        if info is not None:
            return os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, info.size, 0, 0, 0))
        if folder_exists(self):
            return os.stat_result((stat.S_IFDIR | 0o755, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        raise FileNotFoundError(2, os.strerror(2), str(self))

    def lstat(self) -> os.stat_result:
        """Like `stat`."""
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is an object or a folder with this name."""
        del follow_symlinks
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether there is an object with this name."""
        from resize_pos.containers.remote.tree import is_listed

        return is_listed(self)

    def is_dir(self) -> bool:
        """Return whether there are objects below this name."""
        from resize_pos.containers.remote.tree import folder_exists

        return folder_exists(self)

    def iterdir(self) -> Iterator[Self]:
        """List the objects and folders one level below."""
        from resize_pos.containers.remote.tree import listed

        found = listed(self)
        return (self / name for name in sorted({*found.folders, *found.files}))

    def read_bytes(self) -> bytes:
        """Read a small object."""
        from resize_pos.containers.io.source_file import SourceFile

        source = SourceFile.of(self)
        return source.read(0, source.size)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Read a small object as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        """Add a small file to the output that is being written here."""
        from resize_pos.containers.remote.outputs import write_small

        return write_small(self, bytes(data))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: stores have no folders, only names with slashes."""

    def rmdir(self) -> None:
        """Do nothing: stores have no folders, only names with slashes."""


def _restored(parts: tuple[str, ...], secrets: tuple[str, str] | None) -> RemotePath:
    path = RemotePath(*parts)
    if secrets is not None:
        _secrets[str(path)] = secrets
    return path


def place(given: str | os.PathLike[str]) -> Path:
    """Return the path that a user named: a `RemotePath` for a URL of a store, else a `Path`.

    The query and the user of a web address are kept apart, because they may be secrets.
    """
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    if ":/" not in text[:9]:
        return Path(text)
    if text.startswith("file:///"):  # as a file manager copies it
        from urllib.parse import unquote

        return Path(unquote(text.removeprefix("file://")))
    found = _URL.fullmatch(text)
    if found is None:
        return Path(text)
    scheme, rest = found["scheme"].lower(), found["rest"] or ""
    user, query = "", ""
    if scheme in _WITH_SECRETS:
        rest, _, query = rest.partition("#")[0].partition("?")
        host, slash, path = rest.partition("/")
        user, _, host = host.rpartition("@")
        rest = f"{host}{slash}{path}"
    # After a third slash there is no name of a bucket or a server. The first folder is none.
    parts = () if rest.startswith("/") else (part for part in rest.split("/") if part)
    made = RemotePath(f"{scheme}:", *parts)
    if user or query:
        _secrets[str(made)] = (user, query)
    return made


def redacted(text: str) -> str:
    """Return a word of a command line without the secrets of a URL in it."""
    if "://" not in text:
        return text
    made = place(text)
    if not isinstance(made, RemotePath) or made.secrets == ("", ""):
        return text
    user, query = made.secrets
    scheme, _, rest = str(made).partition("://")
    return f"{scheme}://{'***@' if user else ''}{rest}{'?***' if query else ''}"
