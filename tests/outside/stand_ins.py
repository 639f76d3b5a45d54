"""Stand-ins for libraries that a package imports and that building a model does not need.

A package may import plotting, data sets or a training loop beside its models. Where such a library
is not installed, an empty module takes its place while the models are recorded. Parents of a
module can also be left out: then its package's `__init__` is not run.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _AnyClass(type):
    """A class that has every attribute, so that it can be a base class or a decorator."""

    def __getattr__(cls, name: str) -> Any:
        return _anything(name)


def _anything(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        decorates = len(args) == 1 and callable(args[0]) and not options
        return args[0] if decorates else self

    parts: dict[str, Callable[..., Any]] = {
        "__init__": lambda self, *args, **options: None,  # noqa: ARG005
        "__call__": call,
        "__getattr__": lambda self, name: _anything(name)(),  # noqa: ARG005
        "__iter__": lambda self: iter(()),  # noqa: ARG005
    }
    return _AnyClass(name, (), parts)


class _StandIn(ModuleType):
    __version__ = "9.9.9"

    def __getattr__(self, name: str) -> Any:
        found = _anything(name)
        setattr(self, name, found)
        return found


class StandIns(MetaPathFinder, Loader):
    """Gives empty modules for some libraries, if no other finder has them."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        known = fullname.partition(".")[0] in self.names
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


def use_stand_ins(names: Collection[str]) -> None:
    """Let imports of these libraries succeed, whether they are installed or not."""
    sys.meta_path.append(StandIns(names))


def without_parents(module: str) -> None:
    """Make a module importable without running the `__init__` of the packages around it."""
    top = module.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == top]:
        del sys.modules[name]
    for package in _parents(module):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.submodule_search_locations is None:
            return
        empty = ModuleType(package)
        empty.__path__ = list(spec.submodule_search_locations)
        sys.modules[package] = empty
        outer, _, last = package.rpartition(".")
        if outer:
            setattr(sys.modules[outer], last, empty)


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")[:-1]
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
