"""A walked pickle as plain values: numbers, texts, tuples, lists, and objects by their class name.

The caller states which classes and functions are accepted; any other name is refused. Nothing is
imported, called or hashed. The work is limited by the size of the pickle: a value that is fetched
from the memo several times is counted every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from resize_pos.containers.pickle.values import (
    Atom,
    Global,
    Made,
    PickledDict,
    PickledItem,
    PickledSequence,
    PickledValue,
    Ref,
    value_of,
)
from resize_pos.containers.pickle.walk import Walked
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_DEEPEST = 32  # levels; metadata of torch has nine
_REPEATED = 4  # plain values for each byte of the pickle
_LARGEST_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Name:
    """A class, function or constant. It is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A dict, as pairs in the order of the pickle: its keys are not hashed."""

    items: tuple[tuple[Plain, Plain], ...]

    def string_keys(self) -> dict[str, Plain] | None:
        """Give it as a dict if every key is a text; a key that is set again has its last value."""
        found: dict[str, Plain] = {}
        for key, value in self.items:
            if not isinstance(key, str):
                return None
            found[key] = value
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object that is made without arguments and then given its state."""

    cls: Name
    state: Plain  # None: it was given none


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """The result of a call."""

    function: Name
    arguments: tuple[Plain, ...]


Plain: TypeAlias = (
    "bool | int | float | str | tuple[Plain, ...] | list[Plain]"
    " | Name | Pairs | Instance | Call | None"
)

Accepts = Callable[[str, str], bool]


def plain_values(walked: Walked, accepts: Accepts) -> Plain:
    """Convert a walked pickle; `accepts` decides by module and name what may be named in it."""
    return _Converter(accepts, _REPEATED * walked.end).convert(walked.root, 0)


class _Converter:
    def __init__(self, accepts: Accepts, budget: int) -> None:
        self._accepts = accepts
        self._budget = budget

    def convert(self, ref: Ref, depth: int) -> Plain:
        self._budget -= 1
        if self._budget < 0:
            raise ContainerError("it repeats its values more often than any checkpoint does.")
        if depth > _DEEPEST:
            raise ContainerError(f"it is nested more than {_DEEPEST} levels deep.")
        value = value_of(ref)
        if isinstance(value, Atom):
            return _constant(value)
        if isinstance(value, Global):
            return self._name(value)
        if isinstance(value, PickledSequence):
            if value.kind == "set":
                raise ContainerError(f"it holds a set at byte {value.start}.")
            items = [self.convert(item, depth + 1) for item in value.items]
            return tuple(items) if value.kind == "tuple" else items
        if isinstance(value, PickledDict):
            return self._pairs(value.entries, depth)
        if isinstance(value, Made):
            return self._object(value, depth)
        raise _unexpected(value)

    def _pairs(self, entries: Sequence[PickledItem], depth: int) -> Pairs:
        found = [
            (self.convert(entry.key, depth + 1), self.convert(entry.value, depth + 1))
            for entry in entries
        ]
        return Pairs(tuple(found))

    def _object(self, made: Made, depth: int) -> Plain:
        call = value_of(made.call)
        if not isinstance(call, Global):
            raise _unexpected(call)
        name = self._name(call)
        arguments = self.convert(made.arguments, depth + 1)
        if not isinstance(arguments, tuple) or made.items or len(made.state) > 1:
            raise _unexpected(made)
        if made.entries or (name.module, name.name) == ("collections", "OrderedDict"):
            if arguments or made.state or name.name != "OrderedDict":
                raise _unexpected(made)
            return self._pairs(made.entries, depth)
        if arguments:
            if made.state:
                raise _unexpected(made)
            return Call(name, arguments)
        state = self.convert(made.state[0], depth + 1) if made.state else None
        if not _is_state(state):
            raise _unexpected(made)
        return Instance(name, state)

    def _name(self, value: Global) -> Name:
        if not self._accepts(value.module, value.name):
            raise ContainerError(
                f"it asks for {value}, which no checkpoint needs; it was not run.",
                "There is no unsafe fallback: the file may be malicious, or it was made by other "
                "code.",
            )
        return Name(value.module, value.name)


def _is_state(value: Plain) -> bool:
    """Accept a dict of attributes, or a tuple that the class itself unpacks.

    A pair is refused: an unpickler passes the names in its second item to `setattr`.
    """
    if isinstance(value, Pairs):
        names = value.string_keys()
        return names is not None and all(map(_is_attribute, names))
    return value is None or (isinstance(value, tuple) and len(value) != 2)


def _is_attribute(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__")


def _constant(atom: Atom) -> Plain:
    value = atom.value
    if isinstance(value, bytes):
        raise ContainerError(f"it holds raw bytes at byte {atom.start}.")
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        raise ContainerError(f"the number at byte {atom.start} has more than 64 bits.")
    return value


def _unexpected(value: PickledValue) -> ContainerError:
    return ContainerError(f"it makes an object at byte {value.start} in a way that is not known.")
