"""The result of a symbolic walk over a pickle: values that know where they are written.

No object of the pickle is built: a class is kept as its name, a call as its callable and arguments.
A checkpoint has millions of these values, so a list is created only when it gets its first item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from resize_pos.core.fast_dataclass import dataclass


@dataclass(slots=True, eq=False)
class Cell:
    """One entry of the memo: what was put, where, and where it is fetched again."""

    index: int
    value: PickledValue
    start: int  # of the PUT or MEMOIZE opcode
    end: int
    gets: list[Got] | tuple[()] = ()


@dataclass(slots=True, eq=False)
class PickledValue:
    """Something that the opcodes in `[start, end)` push."""

    start: int
    end: int
    cells: list[Cell] | tuple[Cell, ...] | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Got:
    """A value pushed again from the memo; the opcode in `[start, end)` fetches it."""

    start: int
    end: int
    cell: Cell


Ref = PickledValue | Got


@dataclass(slots=True, eq=False)
class Atom(PickledValue):
    """A number, a string, None, True or False; the content of bytes is not kept."""

    value: int | float | str | bytes | bool | None


@dataclass(slots=True, eq=False)
class Global(PickledValue):
    """The name of a class or function. It is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class PickledSequence(PickledValue):
    """A tuple, list or set."""

    kind: str
    items: list[Ref] | tuple[()]


@dataclass(slots=True, eq=False)
class PickledItem:
    """One `key: value` of a mapping; `[start, end)` are the opcodes that push both."""

    key: Ref
    value: Ref
    start: int
    end: int
    lone: int | None  # end of the SETITEM that sets only this item; None: set by SETITEMS


@dataclass(slots=True, eq=False)
class PickledDict(PickledValue):
    """A plain dict."""

    entries: list[PickledItem] | tuple[()]


@dataclass(slots=True, eq=False)
class Persistent(PickledValue):
    """Something kept outside of the pickle: in torch's files, a storage."""

    id: Ref


@dataclass(slots=True, eq=False)
class Made(PickledValue):
    """An object that a call would make, with what is put into it afterwards."""

    call: Ref
    arguments: Ref
    state: list[Ref] | tuple[()] = ()
    items: list[Ref] | tuple[()] = ()
    entries: list[PickledItem] | tuple[()] = ()


def value_of(ref: Ref) -> PickledValue:
    """Return the value itself, also if the reference fetches it from the memo."""
    return ref.cell.value if isinstance(ref, Got) else ref


def atom_of(ref: Ref) -> object:
    """Return the content of an atom; `...` for anything else."""
    value = value_of(ref)
    return value.value if isinstance(value, Atom) else ...


def sequence_of(ref: Ref, kind: str = "tuple") -> Sequence[Ref] | None:
    """Return the items of a tuple (or list, or set); None for anything else."""
    value = value_of(ref)
    return value.items if isinstance(value, PickledSequence) and value.kind == kind else None


def global_of(ref: Ref) -> tuple[str, str] | None:
    """Return module and name of a global; None for anything else."""
    value = value_of(ref)
    return (value.module, value.name) if isinstance(value, Global) else None


def entries_of(ref: Ref) -> Sequence[PickledItem] | None:
    """Return the entries of a dict or a dict-like object; None for anything else."""
    value = value_of(ref)
    if isinstance(value, PickledDict):
        return value.entries
    return value.entries if isinstance(value, Made) and value.entries else None
