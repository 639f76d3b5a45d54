"""A symbolic walk over a pickle's opcodes: no class is imported, nothing is called.

`walk` runs the stack machine of protocols 0–5 on values that only store their position. The size of
the result is linear in the number of opcodes, however often the memo is used. The number of opcodes
is limited by the file size. So memory is at most a fixed multiple of the file size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, NoReturn

from resize_pos.containers.pickle.opcodes import read_opcodes
from resize_pos.containers.pickle.values import (
    Atom,
    Cell,
    Global,
    Got,
    Made,
    Persistent,
    PickledDict,
    PickledItem,
    PickledSequence,
    Ref,
    value_of,
)
from resize_pos.core.collection import collection_paused
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_ALLOWED = 300_000  # opcodes, memo and dict entries allowed in any file; about 100 bytes each
_BYTES_EACH = 4  # one more is allowed per 4 bytes of the file: a tensor with its record needs 6
_HIGHEST_INDEX = 2**32  # of the memo
_HIGHEST_PROTOCOL = 5

_CONSTANTS: Mapping[str, bool | None] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ATOMS = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
)
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_EMPTY = {"EMPTY_TUPLE": "tuple", "EMPTY_LIST": "list", "EMPTY_SET": "set"}
_MARKED = {"TUPLE": "tuple", "LIST": "list", "FROZENSET": "set"}
_COUNTED = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """A pickle taken apart."""

    root: Ref
    end: int  # the offset after STOP
    protocol: int
    frames: tuple[tuple[int, int], ...]  # offset of each FRAME opcode, and the length it states
    counts_memo: bool  # MEMOIZE numbers entries by counting, so none may be removed
    persistent: tuple[Persistent, ...]  # every storage reference, named or not
    cells: tuple[Cell, ...]  # every entry that the memo ever had


def walk(pickle: bytes | BinaryIO, size: int | None = None) -> Walked:
    """Walk one pickle from its first opcode to STOP; offsets are relative to the bytes or file.

    `size` is the size of the file that contains the pickle. It limits the number of opcodes.
    """
    if size is None:
        size = len(pickle) if isinstance(pickle, bytes) else 0
    with collection_paused():
        return _Machine(_ALLOWED + size // _BYTES_EACH).run(pickle)


@dataclass(slots=True, eq=False)
class _Mark:
    """What MARK leaves on the stack."""

    start: int


class _EmptyStack(Exception):
    """An opcode needs more values than there are."""


# The exceptions that the opcode reader raises.
_UNREADABLE = (ValueError, struct.error, EOFError, OverflowError, LookupError)
_Handler = Callable[[Any, int, int], None]


class _Machine:
    def __init__(self, room: int) -> None:
        self._room = room
        self._stack: list[Ref | _Mark] = []
        self._memo: dict[int, Cell] = {}
        self._cells: list[Cell] = []
        self._protocol = 0
        self._frames: list[tuple[int, int]] = []
        self._counts_memo = False
        self._persistent: list[Persistent] = []
        self._at = ("the beginning", 0)
        self._handlers = self._table()

    def run(self, pickle: bytes | BinaryIO) -> Walked:
        handlers, end = self._handlers, 0
        try:
            for name, argument, position, end in read_opcodes(pickle):
                self._at = (name, position)
                self._room -= 1
                handler = handlers.get(name)
                if handler is None:
                    self._refuse("is not understood")
                if self._room < 0:
                    raise ContainerError(
                        "the pickle has more opcodes than a checkpoint of this size needs."
                    )
                handler(argument, position, end)
            root = self._pop()
        except _EmptyStack:
            self._refuse("needs more on the stack than there is")
        except _UNREADABLE as error:
            words = str(error) or type(error).__name__
            name, position = self._at
            raise ContainerError(
                f"not a readable pickle after {name} at byte {position}: {words}.",
                "The file is damaged, or it is not a torch checkpoint.",
            ) from error
        return Walked(
            root,
            end,
            self._protocol,
            tuple(self._frames),
            self._counts_memo,
            tuple(self._persistent),
            tuple(self._cells),
        )

    def _table(self) -> Mapping[str, _Handler]:
        table: dict[str, _Handler] = {
            "PROTO": self._proto,
            "FRAME": lambda length, start, _: self._frames.append((start, length)),
            "STOP": lambda *_: None,
            "MARK": lambda _, start, __: self._stack.append(_Mark(start)),
            "POP": lambda *_: self._drop(),
            "POP_MARK": lambda *_: self._drop_mark(),
            "PUT": self._put,
            "BINPUT": self._put,
            "LONG_BINPUT": self._put,
            "MEMOIZE": self._memoize,
            "GET": self._get,
            "BINGET": self._get,
            "LONG_BINGET": self._get,
            "GLOBAL": self._global,
            "STACK_GLOBAL": self._stack_global,
            "EMPTY_DICT": lambda _, start, end: self._stack.append(PickledDict(start, end, ())),
            "DICT": self._dict,
            "SETITEM": self._setitem,
            "SETITEMS": self._setitems,
            "APPEND": self._append,
            "APPENDS": self._appends,
            "ADDITEMS": self._appends,
            "REDUCE": self._make,
            "NEWOBJ": self._make,
            "NEWOBJ_EX": self._make_with_keywords,
            "INST": self._inst,
            "OBJ": self._obj,
            "BUILD": self._build,
            "BINPERSID": self._persist,
            "PERSID": self._persist_text,
        }
        for name in _ATOMS:
            table[name] = self._atom
        for name in _BYTES:
            table[name] = partial(self._constant, b"")
        for name, constant in _CONSTANTS.items():
            table[name] = partial(self._constant, constant)
        for name, kind in _EMPTY.items():
            table[name] = partial(self._empty, kind)
        for name, kind in _MARKED.items():
            table[name] = partial(self._marked, kind)
        for name, length in _COUNTED.items():
            table[name] = partial(self._counted, length)
        return table

    def _refuse(self, fact: str) -> NoReturn:
        name, position = self._at
        raise ContainerError(
            f"the pickle's opcode {name} at byte {position} {fact}.",
            "The file is damaged, or it was not written by torch.save.",
        )

    def _top(self) -> Ref:
        if not self._stack:
            raise _EmptyStack
        top = self._stack[-1]
        if isinstance(top, _Mark):
            self._refuse("meets a mark instead of a value")
        return top

    def _pop(self) -> Ref:
        top = self._top()
        self._stack.pop()
        return top

    def _pop_mark(self) -> tuple[int, list[Ref]]:
        """Take everything above the last mark, and the mark."""
        items: list[Ref] = []
        while self._stack:
            top = self._stack.pop()
            if isinstance(top, _Mark):
                items.reverse()
                return top.start, items
            items.append(top)
        raise _EmptyStack

    def _drop(self) -> None:
        if not self._stack:
            raise _EmptyStack
        self._stack.pop()

    def _drop_mark(self) -> None:
        self._pop_mark()

    def _proto(self, protocol: int, start: int, end: int) -> None:  # noqa: ARG002
        if protocol > _HIGHEST_PROTOCOL:
            self._refuse(f"says protocol {protocol}; known are up to {_HIGHEST_PROTOCOL}")
        self._protocol = protocol

    def _atom(self, value: Any, start: int, end: int) -> None:
        self._stack.append(Atom(start, end, value))

    def _constant(self, value: bytes | bool | None, _: Any, start: int, end: int) -> None:
        self._stack.append(Atom(start, end, value))

    def _empty(self, kind: str, _: None, start: int, end: int) -> None:
        self._stack.append(PickledSequence(start, end, kind, ()))

    def _put(self, index: int, start: int, end: int) -> None:
        value = value_of(self._top())
        if index >= _HIGHEST_INDEX:
            self._refuse("has a number that no pickle needs")
        self._room -= 1
        cell = Cell(index, value, start, end)
        if value.cells is None:
            value.cells = (cell,)
        elif isinstance(value.cells, tuple):
            value.cells = [*value.cells, cell]
        else:
            value.cells.append(cell)
        self._cells.append(cell)
        self._memo[index] = cell

    def _memoize(self, _: None, start: int, end: int) -> None:
        self._counts_memo = True
        self._put(len(self._memo), start, end)

    def _get(self, index: int, start: int, end: int) -> None:
        cell = self._memo.get(index)
        if cell is None:
            self._refuse(f"fetches entry {index}, which was never put")
        got = Got(start, end, cell)
        if isinstance(cell.gets, list):
            cell.gets.append(got)
        else:
            cell.gets = [got]
        self._stack.append(got)

    def _global(self, argument: str, start: int, end: int) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(Global(start, end, module, name))

    def _stack_global(self, _: None, __: int, end: int) -> None:
        name, module = self._pop(), self._pop()
        words = [value_of(module), value_of(name)]
        texts = [word.value for word in words if isinstance(word, Atom)]
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            self._refuse("names no class")
        self._stack.append(Global(module.start, end, str(texts[0]), str(texts[1])))

    def _marked(self, kind: str, _: None, __: int, end: int) -> None:
        start, items = self._pop_mark()
        self._stack.append(PickledSequence(start, end, kind, items))

    def _counted(self, length: int, _: None, __: int, end: int) -> None:
        self._room -= 1  # for the list of items
        items = [self._pop() for _i in range(length)]
        items.reverse()
        self._stack.append(PickledSequence(items[0].start, end, "tuple", items))

    def _entries(self, items: list[Ref], end: int) -> list[PickledItem]:
        if len(items) % 2:
            self._refuse("has a key without a value")
        self._room -= len(items) // 2
        starts = [item.start for item in items[0::2]]
        ends = [*starts, end][1:]  # none where nothing is set
        pairs = zip(items[0::2], items[1::2], starts, ends, strict=True)
        return [PickledItem(key, value, begin, stop, None) for key, value, begin, stop in pairs]

    def _dict(self, _: None, start: int, end: int) -> None:
        begin, items = self._pop_mark()
        self._stack.append(PickledDict(begin, end, self._entries(items, start)))

    def _mapping(self) -> list[PickledItem]:
        target = value_of(self._top())
        if not isinstance(target, PickledDict | Made):
            self._refuse("sets an item of something that is no dict")
        if not isinstance(target.entries, list):
            target.entries = []
        return target.entries

    def _setitem(self, _: None, start: int, end: int) -> None:
        value, key = self._pop(), self._pop()
        self._mapping().append(PickledItem(key, value, key.start, start, end))

    def _setitems(self, _: None, start: int, __: int) -> None:
        items = self._pop_mark()[1]
        self._mapping().extend(self._entries(items, start))

    def _list(self) -> list[Ref]:
        target = value_of(self._top())
        if not isinstance(target, Made | PickledSequence) or getattr(target, "kind", "") == "tuple":
            self._refuse("appends to something that is no list")
        if not isinstance(target.items, list):
            target.items = []
        return target.items

    def _append(self, *_: object) -> None:
        item = self._pop()
        self._list().append(item)

    def _appends(self, *_: object) -> None:
        items = self._pop_mark()[1]
        self._list().extend(items)

    def _make(self, _: None, __: int, end: int) -> None:
        arguments, call = self._pop(), self._pop()
        self._stack.append(Made(call.start, end, call, arguments))

    def _make_with_keywords(self, _: None, __: int, end: int) -> None:
        keywords, arguments, call = self._pop(), self._pop(), self._pop()
        self._stack.append(Made(call.start, end, call, arguments, [keywords]))

    def _inst(self, argument: str, start: int, end: int) -> None:
        module, _, name = argument.partition(" ")
        begin, items = self._pop_mark()
        call = Global(start, end, module, name)
        self._stack.append(Made(begin, end, call, PickledSequence(begin, end, "tuple", items)))

    def _obj(self, _: None, __: int, end: int) -> None:
        begin, items = self._pop_mark()
        if not items:
            self._refuse("names no class")
        arguments = PickledSequence(begin, end, "tuple", items[1:])
        self._stack.append(Made(begin, end, items[0], arguments))

    def _build(self, *_: object) -> None:
        state = self._pop()
        target = value_of(self._top())
        if not isinstance(target, Made):
            self._refuse("sets the state of something that is no object")
        if not isinstance(target.state, list):
            target.state = []
        target.state.append(state)

    def _persist(self, _: None, __: int, end: int) -> None:
        identity = self._pop()
        self._push_persistent(Persistent(identity.start, end, identity))

    def _persist_text(self, text: str, start: int, end: int) -> None:
        self._push_persistent(Persistent(start, end, Atom(start, end, text)))

    def _push_persistent(self, value: Persistent) -> None:
        self._persistent.append(value)
        self._stack.append(value)
