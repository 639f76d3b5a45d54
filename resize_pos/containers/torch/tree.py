"""The tensors of a walked pickle by name: keys, indexes and attributes that lead to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from resize_pos.containers.base import OptimizerState
from resize_pos.containers.pickle.values import (
    Atom,
    Global,
    Made,
    Persistent,
    PickledDict,
    PickledItem,
    PickledSequence,
    PickledValue,
    Ref,
    atom_of,
    entries_of,
    global_of,
    sequence_of,
    value_of,
)
from resize_pos.containers.pickle.walk import Walked
from resize_pos.containers.torch.settings import PickledSetting, note_setting
from resize_pos.containers.torch.tensors import REBUILD, TensorRef, read_call
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

_DEEPEST = 400  # levels; each level of a pickled module takes three
_LONGEST_NAME = 4096
_MOST_OTHERS = 1000  # names of entries that are not tensors; they are only shown
_MOST_CHARACTERS = 1 << 27  # in all names together

_WRAPPERS = {
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
}
_TYPED = {("torch._tensor", "_rebuild_from_type_v2"), ("torch._tensor", "_rebuild_from_type")}
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Everything that a checkpoint's pickle holds, by name."""

    tensors: Mapping[str, TensorRef]
    others: tuple[str, ...]  # names of entries that are not tensors
    optimizers: tuple[OptimizerState, ...]
    entries: Mapping[str, PickledItem]  # of the optimizers' states, by name
    wrapper: str | None  # the key of the mapping with the weights; empty: the whole checkpoint
    settings: Mapping[str, PickledSetting] = field(
        default_factory=dict
    )  # that may state a size, by name


def find_tensors(walked: Walked) -> Tree:
    """Name every tensor by the keys, indexes and attributes that lead to it."""
    return _Finder(walked).find()


@dataclass(slots=True)
class _Visit:
    ref: Ref
    name: str
    depth: int
    module: str | None
    in_state: bool = False  # inside of an optimizer's state
    parent: str | None = None  # the mapping whose value it is


class _Finder:
    def __init__(self, walked: Walked) -> None:
        self._root = walked.root
        self._seen: set[int] = set()
        self._states: set[str] = set()  # names of the optimizers' states
        self._weight_names: list[str] = []
        self._repeated: dict[str, int] = {}
        self._refs: dict[int, TensorRef] = {}
        self._tensors: dict[str, TensorRef] = {}
        self._parents: dict[str, str | None] = {}
        self._others: dict[str, None] = {}
        self._settings: dict[str, PickledSetting] = {}
        self._optimizers: list[OptimizerState] = []
        self._entries: dict[str, PickledItem] = {}
        self._characters = 0

    def find(self) -> Tree:
        levels = [iter([_Visit(self._root, "", 0, None)])]
        while levels:
            visit = next(levels[-1], None)
            if visit is None:
                levels.pop()
            else:
                levels.append(self._visit(visit))
        models = self._models()
        return Tree(
            self._tensors,
            tuple(self._others),
            tuple(replace(optimizer, models=models) for optimizer in self._optimizers),
            self._entries,
            self._wrapper(),
            self._settings,
        )

    def _visit(self, visit: _Visit) -> Iterator[_Visit]:
        value = value_of(visit.ref)
        if isinstance(value, Atom | Global | Persistent):
            self._note_other(visit.name)
            if isinstance(value, Atom) and type(value.value) is int:
                note_setting(self._settings, visit.name, visit.ref)
            return
        if isinstance(value, Made):
            found = self._tensor(value)
            if found is not None:
                found.module = found.module or visit.module
                name = self._unique(visit.name or "tensor")
                found.names.append((name, visit.ref))
                self._tensors[name] = found
                self._parents[name] = visit.parent
                if not visit.in_state:
                    self._weight_names.append(name)
                return
        note_setting(self._settings, visit.name, visit.ref)
        if id(value) in self._seen:  # the same object again: it already has its names
            return
        self._seen.add(id(value))
        if isinstance(value, Made) and _is_opaque(value):
            self._note_other(visit.name)
            return
        yield from self._children(value, visit)

    def _children(self, value: PickledValue, visit: _Visit) -> Iterator[_Visit]:
        if visit.name in self._states:
            visit.in_state = True
        if isinstance(value, PickledSequence):
            yield from self._indexed(value.items, visit)
        elif isinstance(value, PickledDict):
            self._note_optimizer(value.entries, visit.name)
            yield from self._keyed(value.entries, visit)
        elif isinstance(value, Made):
            entries = [*_constructor_entries(value), *value.entries]
            self._note_optimizer(entries, visit.name)
            yield from self._keyed(entries, visit)
            yield from self._indexed(value.items, visit)
            if not (value.entries or _is_mapping(value)):
                yield from self._indexed(sequence_of(value.arguments) or [], visit)
            for state in value.state:
                yield from self._state(value, state, visit)

    def _state(self, owner: Made, state: Ref, visit: _Visit) -> Iterator[_Visit]:
        entries = entries_of(state)
        if entries is None:
            items = sequence_of(state)
            yield from self._indexed(items if items is not None else [state], visit)
            return
        keys = {key for entry in entries if isinstance(key := atom_of(entry.key), str)}
        is_module = set(_MODULE_PARTS) <= keys
        for entry in entries:
            key = atom_of(entry.key)
            if _is_mapping(owner) and key == "_metadata":
                continue  # version numbers that every state dict carries
            if is_module and key in _MODULE_PARTS:
                name = ".".join(global_of(owner.call) or ("a", "module"))
                inner = _Visit(entry.value, visit.name, visit.depth + 1, name, visit.in_state)
                yield from self._keyed(entries_of(entry.value) or [], inner)
            else:
                yield self._child(visit, _word(entry.key, 0), entry.value)

    def _keyed(self, entries: Sequence[PickledItem], visit: _Visit) -> Iterator[_Visit]:
        # For a key that is set again, the last value counts.
        last: dict[str, int] = {}
        for index, entry in enumerate(entries):
            last[_identity(entry.key, index)] = index
        is_state = visit.name in self._states
        for index in last.values():
            entry = entries[index]
            child = self._child(visit, _word(entry.key, index), entry.value)
            child.parent = visit.name
            if is_state:
                self._entries[child.name] = entry
            yield child

    def _indexed(self, items: Sequence[Ref], visit: _Visit) -> Iterator[_Visit]:
        for index, item in enumerate(items):
            if isinstance(item, Atom) and len(self._others) >= _MOST_OTHERS:
                continue  # a long list of numbers
            yield self._child(visit, str(index), item)

    def _child(self, visit: _Visit, word: str, ref: Ref) -> _Visit:
        name = f"{visit.name}.{word}" if visit.name else word
        if len(name) > _LONGEST_NAME:
            raise ContainerError(f"a name in the pickle has {len(name)} characters.")
        if visit.depth >= _DEEPEST:
            raise ContainerError(f"the pickle is nested more than {_DEEPEST} levels deep.")
        return _Visit(ref, name, visit.depth + 1, visit.module, visit.in_state)

    def _note_other(self, name: str) -> None:
        if len(self._others) >= _MOST_OTHERS:
            return
        words = name.split(".", 3)
        self._others[name if len(words) < 4 else f"{words[0]}.{words[1]}.…"] = None

    def _counted(self, name: str) -> str:
        self._characters += len(name)
        if self._characters > _MOST_CHARACTERS:
            raise ContainerError("the names in the pickle are longer than any checkpoint's.")
        return name

    def _unique(self, name: str) -> str:
        """Make the name unique if two paths have the same text, such as keys 1 and "1"."""
        wanted = self._counted(name)
        while wanted in self._tensors:
            self._repeated[name] = count = self._repeated.get(name, 1) + 1
            wanted = f"{name}~{count}"
        return wanted

    def _note_optimizer(self, entries: Sequence[PickledItem], name: str) -> None:
        by_key = {
            key: entry.value
            for entry in entries
            if isinstance(key := atom_of(entry.key), str) and key in ("param_groups", "state")
        }
        groups = sequence_of(by_key["param_groups"], "list") if "param_groups" in by_key else None
        if groups is None or "state" not in by_key or entries_of(by_key["state"]) is None:
            return
        optimizer = OptimizerState(
            name,
            tuple(_group_words(group, "params") for group in groups),
            tuple(_group_words(group, "param_names") for group in groups),
        )
        self._optimizers.append(optimizer)
        self._states.add(optimizer.state)

    def _models(self) -> tuple[tuple[str, ...], ...]:
        """Return the tensors of each mapping, except those of optimizers."""
        models: dict[str | None, list[str]] = {}
        for name in self._weight_names:
            models.setdefault(self._parents[name], []).append(name)
        return tuple(tuple(names) for names in models.values())

    def _wrapper(self) -> str | None:
        """Return the mapping that holds all tensors except those of optimizers, if there is one."""
        parents = {self._parents[name] for name in self._weight_names}
        return parents.pop() if len(parents) == 1 else None

    def _tensor(self, made: Made) -> TensorRef | None:
        """Recognise a call that rebuilds a tensor, through parameters and subclasses."""
        inner: Made | None = made
        for _ in range(4):  # a parameter of a subclass of a tensor
            if inner is None or id(inner) in self._refs:
                break
            call, arguments = global_of(inner.call), sequence_of(inner.arguments)
            if call is None or arguments is None:
                return None
            if call[0] == "torch._utils" and call[1] in REBUILD:
                found = read_call(inner, call[1], arguments)
                if found is not None:
                    self._refs[id(inner)] = found
                break
            if call in _TYPED and len(arguments) >= 3:
                function, nested = global_of(arguments[0]), sequence_of(arguments[2])
                if function is not None and function[1] in REBUILD and nested is not None:
                    found = read_call(inner, function[1], nested)
                    if found is not None:
                        self._refs[id(inner)] = found
                break
            first = value_of(arguments[0]) if call in _WRAPPERS and arguments else None
            inner = first if isinstance(first, Made) else None
        return None if inner is None else self._refs.get(id(inner))


def _identity(key: Ref, index: int) -> str:
    """Identify a key by a string: a file can make number hashes collide, but not string hashes.

    An object or a NaN never equals another key.
    """
    value = atom_of(key)
    if isinstance(value, str):
        return f"s{value}"
    if value is ... or isinstance(value, bytes) or value != value:
        return f"?{index}"
    number = hex(value) if type(value) is int else str(value)
    return f"{type(value).__name__} {number}"


def _word(key: Ref, index: int) -> str:
    value = atom_of(key)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value.bit_length() > 512:
        return f"?{index}"
    return f"?{index}" if value is ... or isinstance(value, bytes) else str(value)


def _group_words(group: Ref, key: str) -> tuple[str, ...]:
    for entry in entries_of(group) or []:
        if atom_of(entry.key) == key:
            items = sequence_of(entry.value, "list") or sequence_of(entry.value) or []
            return tuple(_word(item, index) for index, item in enumerate(items))
    return ()


def _is_mapping(made: Made) -> bool:
    call = global_of(made.call)
    return call is not None and call[1] in ("OrderedDict", "defaultdict", "Counter")


def _is_opaque(made: Made) -> bool:
    """Return whether this is a kind of tensor that we do not read (sparse, nested, wrapped)."""
    call = global_of(made.call)
    return call is not None and call[0].startswith("torch.") and call[1].startswith("_rebuild_")


def _constructor_entries(made: Made) -> list[PickledItem]:
    """Python 2 wrote an OrderedDict's entries as an argument: a list of pairs."""
    arguments = sequence_of(made.arguments) if _is_mapping(made) else None
    pairs = sequence_of(arguments[0], "list") if arguments else None
    entries = []
    for pair in pairs or []:
        items = sequence_of(pair, "list") or sequence_of(pair)
        if items is not None and len(items) == 2:
            entries.append(PickledItem(items[0], items[1], pair.start, pair.end, None))
    return entries
