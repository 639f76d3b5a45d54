"""Disturb the n-th call that changes files: fail it, cut it short, send a signal, change a source.

Runs in a child process: it replaces functions of the standard library for good.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

MOVERS = ("write", "copy_file_range", "sendfile")  # they move bytes, and may move fewer than asked
_BY_HANDLE = (*MOVERS, "fsync", "fchmod", "ftruncate")
_BY_PATH = ("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Fault(NamedTuple):
    """What happens, and at which call (from 1); at call 0 nothing does, and calls are counted."""

    call: int
    error: str = ""  # a name of errno, or `short`
    signal: str = ""
    after: bool = False  # the signal comes after the call was done, not before
    change: str = ""  # `truncate`, `replace` or `append`, done to the sources before the call
    moment: float = 0.0  # the signal comes so many seconds after the start, at no certain call

    def __str__(self) -> str:
        if self.moment:
            return f"{self.signal} after {self.moment:.4f} s"
        what = self.error or self.signal or self.change
        return f"{what} {'after' if self.after else 'at'} call {self.call}"


class Injector:
    """Counts the calls that change something below `out`, and disturbs one of them."""

    def __init__(self, out: Path, sources: Path, fault: Fault) -> None:
        self._out = f"{out.resolve()}{os.sep}"
        self._sources = sources
        self._fault = fault
        self.calls: list[str] = []

    def install(self) -> None:
        for name in _BY_HANDLE:
            self._wrap(os, name, _written_handle(1 if name == "copy_file_range" else 0))
        for name in _BY_PATH:
            self._wrap(os, name, itemgetter(1 if name in ("rename", "replace", "link") else 0))
        self._wrap(os, "open", lambda args: args[0] if args[1] & _WRITES else None)
        from resize_pos.containers.io import rename

        self._wrap(rename, "_renameat2", lambda args: args[1])
        real = io.open

        def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or not self._counts(file):
                return real(file, mode, *args, **options)
            return self._call("open", lambda: self._file(file, mode, *args, **options))

        io.open = opened
        builtins.open = opened

    def _file(
        self,
        file: Any,
        mode: str,
        buffering: int = -1,
        encoding: Any = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        """Open a file for writing whose writes go through here; C code would not."""
        injector = self
        del buffering

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data)
                return int(
                    injector._call(
                        "write",
                        lambda: super(Raw, self).write(view),
                        lambda: super(Raw, self).write(view[: max(1, len(view) // 2)]),
                    )
                )

        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        buffered: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, *more, **options)

    def _wrap(self, module: Any, name: str, path: Callable[[tuple[Any, ...]], Any]) -> None:
        real = getattr(module, name, None)
        if real is None:
            return

        def wrapped(*args: Any, **options: Any) -> Any:
            if not self._counts(path(args)):
                return real(*args, **options)
            return self._call(
                name, lambda: real(*args, **options), lambda: real(*_halved(name, args), **options)
            )

        setattr(module, name, wrapped)

    def _counts(self, path: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self._out)  # noqa: PTH100

    def _call(
        self, name: str, real: Callable[[], Any], short: Callable[[], Any] | None = None
    ) -> Any:
        self.calls.append(name)
        fault = self._fault
        if len(self.calls) != fault.call:
            return real()
        if fault.error == "short":
            return short() if short is not None and name in MOVERS else real()
        if fault.error:
            number = getattr(errno, fault.error)
            raise OSError(number, os.strerror(number))
        if fault.change:
            change(self._sources, fault.change)
        if fault.signal and not fault.after:
            os.kill(os.getpid(), getattr(signal, fault.signal))
        result = real()
        if fault.signal and fault.after:
            os.kill(os.getpid(), getattr(signal, fault.signal))
        return result


def change(sources: Path, how: str) -> None:
    """Do to every weights file what another program might do in the middle of a copy."""
    for path in sorted(sources.rglob("*")):
        if not path.is_file() or path.suffix in (".json", ".md", ".txt"):
            continue
        if how == "truncate":
            os.truncate(path, path.stat().st_size // 2)
        elif how == "append":
            with path.open("ab") as file:
                file.write(b"more")
        else:  # another file of the same size takes its place
            other = path.with_name("other")
            other.write_bytes(path.read_bytes()[::-1])
            os.rename(other, path)  # noqa: PTH104


def _written_handle(at: int) -> Callable[[tuple[Any, ...]], str]:
    """Find the file behind the handle that is the argument at this place."""

    def path(args: tuple[Any, ...]) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{args[at]}")  # noqa: PTH115
        except OSError:
            return ""

    return path


def _halved(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the arguments with half of the bytes, at least one."""
    if name == "write":
        return (args[0], memoryview(args[1])[: max(1, len(args[1]) // 2)])
    if name in MOVERS:
        at = 2 if name == "copy_file_range" else 3
        return (*args[:at], max(1, args[at] // 2), *args[at + 1 :])
    return args
