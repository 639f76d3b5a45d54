"""Rewrite a checkpoint's pickle for tensors of new shapes, and return the new storages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from resize_pos.containers.io.splice import LaterBytes, NewBytes
from resize_pos.containers.pickle.edit import (
    PickleEditor,
    encode_global,
    encode_int,
    encode_ints,
    encode_str,
)
from resize_pos.containers.pickle.values import Got, Made, Ref, atom_of, global_of, value_of
from resize_pos.containers.pickle.walk import Walked
from resize_pos.containers.torch.dtypes import STORAGE_CLASS, TORCH_NAME, UNTYPED
from resize_pos.containers.torch.tensors import TensorRef, contiguous, storage_of
from resize_pos.containers.torch.tree import Tree
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import DTYPES

_HOOKS = encode_global("collections", "OrderedDict") + b")R"
_TRUE, _FALSE = b"\x88", b"\x89"


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new content of one tensor, contiguous; it may still be computed."""

    shape: tuple[int, ...]
    content: NewBytes | LaterBytes
    size: int
    identity: object  # equal if the content is equal

    @classmethod
    def of(cls, shape: tuple[int, ...], data: memoryview) -> Replacement:
        """Make a replacement from bytes that are already computed."""
        import hashlib  # not needed by commands that only read

        return cls(shape, NewBytes(data), data.nbytes, hashlib.sha256(data).digest())


@dataclass(frozen=True, slots=True)
class Edited:
    """A new pickle, and how the storages beside it change."""

    pickle: bytes
    storages: Mapping[str, NewBytes | LaterBytes]  # new content, by key
    added: tuple[str, ...]  # keys that the source does not have
    removed: frozenset[str]  # keys that are no longer used


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A contiguous tensor to be written, in its storage."""

    dtype: str
    shape: tuple[int, ...]
    key: str
    location: str = "cpu"
    offset: int = 0
    stride: tuple[int, ...] | None = None
    count: int | None = None  # elements of the storage, where it has more than this tensor
    requires_grad: bool = False


def encode_tensor(spec: TensorSpec, *, untyped: bool = False) -> bytes:
    """Write the call that rebuilds a tensor; `untyped` for dtypes that have no storage class."""
    untyped = untyped or spec.dtype not in STORAGE_CLASS
    count = spec.count if spec.count is not None else _elements(spec.shape)
    if untyped:
        count = count * DTYPES[spec.dtype].bits // 8 if spec.count is None else count
    storage = (
        b"(" + encode_str("storage") + _storage_class(UNTYPED if untyped else spec.dtype)
        + encode_str(spec.key) + encode_str(spec.location) + encode_int(count) + b"tQ"
    )  # fmt: skip
    stride = spec.stride if spec.stride is not None else contiguous(spec.shape)
    numbers = encode_int(spec.offset) + encode_ints(spec.shape) + encode_ints(stride)
    grad = _TRUE if spec.requires_grad else _FALSE
    last = encode_global("torch", TORCH_NAME[spec.dtype]) if untyped else b""
    function = "_rebuild_tensor_v3" if untyped else "_rebuild_tensor_v2"
    body = b"(" + storage + numbers + grad + _HOOKS + last + b"t"
    return encode_global("torch._utils", function) + body + b"R"


def edit_checkpoint(
    pickle: bytes,
    walked: Walked,
    tree: Tree,
    changes: Mapping[str, Replacement],
    dropped: Collection[str] = (),
    before: Callable[[PickleEditor], None] | None = None,
) -> Edited:
    """Return every changed tensor its new shape, in its own storage or in a new one.

    `before` is called first, for further edits of the pickle that a format needs.
    """
    editor = PickleEditor(pickle, walked)
    edit = _Edit(editor, walked, tree, dropped)
    if before is not None:
        before(editor)
    return edit.run(changes)


def _storage_class(dtype: str) -> bytes:
    return encode_global("torch.storage" if dtype == UNTYPED else "torch", STORAGE_CLASS[dtype])


def _elements(shape: Iterable[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


@dataclass(slots=True, eq=False)
class _Fate:
    """How to edit one place where a tensor is written, or fetched from the memo."""

    ref: TensorRef
    place: Ref | None  # None: the call that rebuilds the tensor, edited number by number
    replacement: Replacement | None  # None: this place stays as it is, while others change


class _Edit:
    def __init__(
        self, editor: PickleEditor, walked: Walked, tree: Tree, dropped: Collection[str]
    ) -> None:
        self._editor = editor
        self._tree = tree
        self._entries = [tree.entries[name] for name in dropped]
        self._users: dict[str, set[int]] = {}  # storage key → where it is referred to
        for persistent in walked.persistent:
            storage = storage_of(persistent)
            if storage is not None:
                users = self._users.setdefault(storage.key, set())
                if not any(e.start <= persistent.start < e.end for e in self._entries):
                    users.add(persistent.start)
        numbers = [int(key) for key in self._users if key.isdecimal() and len(key) < 18]
        self._next = max(numbers, default=-1) + 1

    def run(self, changes: Mapping[str, Replacement]) -> Edited:
        for entry in self._entries:
            self._editor.remove(entry)
        fates = [fate for ref in self._changed(changes) for fate in _fates(ref, changes)]
        groups: dict[object, list[_Fate]] = {}
        for fate in fates:
            if fate.replacement is None:
                assert fate.place is not None
                self._users[fate.ref.storage.key].add(fate.place.start)
                self._editor.replace(fate.place, _written_anew(fate, fate.ref.storage.key))
            else:
                groups.setdefault(_view(fate.ref, fate.replacement), []).append(fate)
        storages: dict[str, NewBytes | LaterBytes] = {}
        added: list[str] = []
        for group in groups.values():
            key = self._key(group)
            if key not in self._users:
                added.append(key)
            assert group[0].replacement is not None
            storages[key] = group[0].replacement.content
            for fate in group:
                if fate.place is None:
                    self._change(fate, key)
                else:
                    self._editor.replace(fate.place, _written_anew(fate, key))
        unused = {key for key, users in self._users.items() if not users}
        return Edited(
            self._editor.result(), storages, tuple(added), frozenset(unused - set(storages))
        )

    def _changed(self, changes: Mapping[str, Replacement]) -> list[TensorRef]:
        refs = {id(ref): ref for ref in (self._tree.tensors[name] for name in changes)}
        for ref in refs.values():
            if ref.module is not None:
                raise ContainerError(
                    f"{ref.names[0][0]} lies in a pickled {ref.module}, whose other attributes "
                    "(image size, grid …) would keep their old values.",
                    "Save model.state_dict() instead, or write the tensors alone: "
                    "-o NAME.safetensors --drop-extras.",
                )
        return list(refs.values())

    def _key(self, group: list[_Fate]) -> str:
        """Reuse the storage if no other tensor reads it; otherwise take a new key."""
        old = group[0].ref.storage.key
        mine = {fate.ref.storage.persistent.start for fate in group if fate.place is None}
        if mine and self._users[old] == mine:
            return old
        self._users[old] -= mine
        self._next += 1
        return str(self._next - 1)

    def _change(self, fate: _Fate, key: str) -> None:
        """Write new numbers into the call that rebuilds a tensor."""
        ref, replacement, editor = fate.ref, fate.replacement, self._editor
        assert replacement is not None
        storage, arguments = ref.storage, ref.arguments
        count = replacement.size if storage.dtype == UNTYPED else _elements(replacement.shape)
        if _is_shared(ref.made.arguments) or _is_shared(arguments[0]):
            raise ContainerError(f"{ref.names[0][0]} shares its description with another tensor.")
        if _is_shared(storage.persistent.id):
            raise ContainerError(f"{ref.names[0][0]} shares its storage's id with another tensor.")
        if key != storage.key:
            editor.replace(storage.items[2], encode_str(key))
        if count != storage.count:
            editor.replace(storage.items[4], encode_int(count))
        if ref.offset:
            editor.replace(arguments[1], encode_int(0))
        if replacement.shape != ref.shape:
            editor.replace_ints(arguments[2], replacement.shape)
        if contiguous(replacement.shape) != ref.stride:
            editor.replace_ints(arguments[3], contiguous(replacement.shape))


def _fates(ref: TensorRef, changes: Mapping[str, Replacement]) -> list[_Fate]:
    """Decide for every name of one tensor; names with the same replacement stay one tensor."""
    owner = next((n for n, place in ref.names if _writes(place, ref)), None)
    own = changes.get(owner) if owner is not None else None
    fates = [_Fate(ref, None, own)] if own is not None else []
    for name, place in ref.names:
        if name != owner and not _same(changes.get(name), own):
            fates.append(_Fate(ref, place, changes.get(name)))
    return fates


def _writes(place: Ref, ref: TensorRef) -> bool:
    return not isinstance(place, Got) and place.start <= ref.made.start < place.end


def _same(one: Replacement | None, other: Replacement | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.identity == other.identity


def _view(ref: TensorRef, replacement: Replacement) -> object:
    """Identify tensors that were one view and get equal content, so that they stay tied."""
    before = (ref.storage.key, ref.offset, ref.shape, ref.stride, ref.dtype)
    return (*before, replacement.shape, replacement.identity)


def _is_shared(ref: Ref) -> bool:
    return isinstance(ref, Got) or any(cell.gets for cell in ref.cells or [])


def _written_anew(fate: _Fate, key: str) -> bytes:
    """Write a tensor again at a place where it was fetched from the memo."""
    ref, replacement = fate.ref, fate.replacement
    assert fate.place is not None
    untyped = ref.storage.dtype == UNTYPED
    grad = len(ref.arguments) > 4 and atom_of(ref.arguments[4]) is True
    if replacement is None:
        spec = TensorSpec(
            ref.dtype, ref.shape, key, ref.storage.location, ref.offset, ref.stride,
            ref.storage.count, grad,
        )  # fmt: skip
    else:
        spec = TensorSpec(
            ref.dtype, replacement.shape, key, ref.storage.location, requires_grad=grad
        )
    value = value_of(fate.place)
    call = global_of(value.call) if isinstance(value, Made) else None
    tensor = encode_tensor(spec, untyped=untyped)
    if value is ref.made and call is not None and call[1].startswith("_rebuild_tensor_v"):
        return tensor
    if call == ("torch._utils", "_rebuild_parameter"):
        return encode_global(*call) + tensor + _TRUE + _HOOKS + b"\x87R"
    raise ContainerError(
        f"{ref.names[0][0]} and {ref.names[-1][0]} are one tensor in the file, of which only one "
        "is to change."
    )
