"""The `.metadata` of a torch distributed checkpoint: a pickle, read without running anything.

torch's own reader unpickles this file, and a pickle can call any function that it names. Here the
opcodes are walked symbolically (`containers/pickle`). The result contains only our own value types,
and every field is checked. The new metadata is a pickle written from these values. So the output
contains nothing that was not checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from resize_pos.containers.detect import DISTRIBUTED_PIECE
from resize_pos.containers.io.link_or_copy import require_bare, require_inside
from resize_pos.containers.pickle.plain import Call, Instance, Name, Pairs, Plain, plain_values
from resize_pos.containers.pickle.walk import walk
from resize_pos.containers.pickle.write import write_pickle
from resize_pos.containers.torch.dtypes import DTYPE_NAMES
from resize_pos.core.errors import ContainerError
from resize_pos.core.fast_dataclass import dataclass

METADATA = ".metadata"
_LARGEST = 256 * 2**20
_MOST_AXES = 64
_TORCH = "torch.distributed.checkpoint"
_BEFORE_2_3 = "torch.distributed._shard.sharded_tensor.metadata"  # where some classes used to be

_PATHS = frozenset({"Path", "PosixPath", "PurePath", "PurePosixPath"})
_PATHS |= {"WindowsPath", "PureWindowsPath"}

# Every class and function that the metadata of a checkpoint may name.
_CLASSES: Mapping[str, frozenset[str]] = {
    f"{_TORCH}.metadata": frozenset(
        {
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        }
    ),
    f"{_TORCH}.filesystem": frozenset({"_StorageInfo"}),
    _BEFORE_2_3: frozenset({"TensorProperties", "MEM_FORMAT_ENCODING"}),
    "collections": frozenset({"OrderedDict"}),
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,
    "torch": frozenset({"Size", *DTYPE_NAMES})
    | {"complex32", "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "float4_e2m1fn_x2"}
    | {f"{sign}{bits}" for sign in ("int", "uint") for bits in range(1, 8)},
    "torch.serialization": frozenset({"_get_layout"}),
}
_SIZE = Name("torch", "Size")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The part of a tensor that one entry holds."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the checkpoint, in one chunk or several."""

    size: tuple[int, ...]
    dtype: str  # as torch calls it
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of a .distcp file: a whole tensor, a part of one, or a pickled object."""

    number: int  # in the order of the metadata
    name: str
    offsets: tuple[int, ...] | None  # of the chunk; None: the entry is not a tensor
    file: str
    begin: int
    end: int
    transformed: bool  # compressed or encrypted by an extension


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """What `.metadata` states, checked."""

    tensors: Mapping[str, StoredTensor]  # pickled objects are left out
    pieces: tuple[Piece, ...]  # in the order of the metadata
    _content: Mapping[str, Plain]
    _class: Name

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """Read and check the metadata of a checkpoint."""
        path = require_inside(folder, METADATA)
        try:
            if path.stat().st_size > _LARGEST:
                raise ContainerError(f"{METADATA} is too large.")
            data = path.read_bytes()
            size = sum(file.stat().st_size for file in folder.glob(f"*{DISTRIBUTED_PIECE}")) + len(
                data
            )
        except OSError as error:
            raise ContainerError(f"{METADATA} cannot be read: {error.strerror}.") from error
        return cls.of(data, size)

    @classmethod
    def of(cls, data: bytes, size: int | None = None) -> Metadata:
        """Check the bytes of a metadata file; `size` is that of the whole checkpoint."""
        try:
            value = plain_values(walk(data, size), _is_known)
        except ContainerError as fact:
            raise ContainerError(f"{METADATA}: {fact.message}", fact.hint) from None
        content = _state(value, "Metadata", "its content")
        entries = _pairs(content.get("state_dict_metadata"), "the list of tensors").string_keys()
        places = _pairs(content.get("storage_data"), "the list of entries")
        _require(entries is not None, "a name")
        assert entries is not None
        assert isinstance(value, Instance)
        tensors = dict(_tensors(entries))
        pieces = tuple(_pieces(places, entries))
        seen: set[str] = set()
        for piece in pieces:
            identity = f"{piece.name}\0{piece.offsets}"
            _require(identity not in seen, f"the entry of {piece.name}")
            seen.add(identity)
        return cls(tensors, pieces, content, value.cls)

    def changed(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        moved: Mapping[int, tuple[str, int, int]],
    ) -> bytes:
        """Write the metadata for tensors of new shapes (one piece each) and for moved pieces.

        `moved` maps a piece's number to its file, begin and length. A piece of a changed tensor
        that is not in `moved` is removed.
        """
        tensors = _pairs(self._content["state_dict_metadata"], "the list of tensors")
        places = _pairs(self._content["storage_data"], "the list of entries")
        new_tensors = [
            (name, _resized(entry, shapes[name]) if name in shapes else entry)
            for name, entry in tensors.items
            if isinstance(name, str)
        ]
        new_places = []
        for piece, (key, place) in zip(self.pieces, places.items, strict=True):
            if piece.number in moved:
                file, begin, length = moved[piece.number]
                place = _with(place, relative_path=file, offset=begin, length=length)
            elif piece.name in shapes:
                continue
            if piece.name in shapes:
                zeros = (0,) * len(shapes[piece.name])
                key = _with(key, offset=_size(zeros), index=0)
            new_places.append((key, place))
        content: dict[str, Plain] = {
            **self._content,
            "state_dict_metadata": Pairs(tuple(new_tensors)),
            "storage_data": Pairs(tuple(new_places)),
        }
        return write_pickle(Instance(self._class, Pairs(tuple(content.items()))))


def require_fitting(folder: Path, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Check that the pieces fit the files; return them ordered by file and position."""
    sizes: dict[str, int] = {}
    for piece in pieces:
        name = require_bare(piece.file, METADATA)
        if name not in sizes:
            path = require_inside(folder, name)
            if not path.is_file():
                raise ContainerError(f"{name}, which {METADATA} names, is missing.")
            sizes[name] = path.stat().st_size
        if piece.begin < 0 or piece.end < piece.begin or piece.end > sizes[name]:
            raise ContainerError(
                f"{METADATA} says that {piece.name} is at bytes {piece.begin} to {piece.end} of "
                f"{name}, which has {sizes[name]}."
            )
    found = sorted(pieces, key=lambda piece: (piece.file, piece.begin, piece.end))
    for before, after in itertools.pairwise(found):
        if before.file == after.file and after.begin < before.end:
            raise ContainerError(
                f"{METADATA} says that {before.name} and {after.name} overlap in {after.file}."
            )
    return tuple(found)


def _is_known(module: str, name: str) -> bool:
    return name in _CLASSES.get(module, ())


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ContainerError(f"{METADATA}: {what} is not what it should be.")


def _pairs(value: Plain, what: str) -> Pairs:
    _require(isinstance(value, Pairs), what)
    assert isinstance(value, Pairs)
    return value


def _state(value: Plain, cls: str, what: str) -> dict[str, Plain]:
    """Return the attributes of an object of one class."""
    _require(isinstance(value, Instance) and value.cls.name == cls, what)
    assert isinstance(value, Instance)
    state = value.state.string_keys() if isinstance(value.state, Pairs) else None
    _require(state is not None, what)
    assert state is not None
    return state


def _counts(value: Plain, what: str) -> tuple[int, ...]:
    """Read a `torch.Size`."""
    items = value.arguments if isinstance(value, Call) and value.function == _SIZE else ()
    numbers = items[0] if len(items) == 1 else None
    _require(isinstance(numbers, tuple) and len(numbers) <= _MOST_AXES, what)
    assert isinstance(numbers, tuple)
    counts = [n for n in numbers if type(n) is int and n >= 0]
    _require(len(counts) == len(numbers) and math.prod(n or 1 for n in counts) < 2**60, what)
    return tuple(counts)


def _tensors(entries: Mapping[str, Plain]) -> Iterator[tuple[str, StoredTensor]]:
    for name, entry in entries.items():
        if isinstance(entry, Instance) and entry.cls.name == "BytesStorageMetadata":
            continue
        state = _state(entry, "TensorStorageMetadata", name)
        size = _counts(state.get("size"), f"the size of {name}")
        chunks = state.get("chunks")
        _require(isinstance(chunks, list), f"the list of parts of {name}")
        assert isinstance(chunks, list)
        parts = tuple(_chunk(chunk, size, f"a part of {name}") for chunk in chunks)
        yield name, StoredTensor(size, _dtype(state.get("properties"), name), parts)


def _chunk(value: Plain, size: tuple[int, ...], what: str) -> Chunk:
    state = _state(value, "ChunkStorageMetadata", what)
    chunk = Chunk(_counts(state.get("offsets"), what), _counts(state.get("sizes"), what))
    fits = len(chunk.sizes) == len(chunk.offsets) == len(size) and all(
        begin + length <= whole
        for begin, length, whole in zip(chunk.offsets, chunk.sizes, size, strict=True)
    )
    _require(fits, what)
    return chunk


def _dtype(value: Plain, name: str) -> str:
    """Read a `TensorProperties`, whose state is a tuple that begins with the dtype."""
    what = f"the type of {name}"
    _require(isinstance(value, Instance) and value.cls.name == "TensorProperties", what)
    assert isinstance(value, Instance)
    state = value.state
    _require(isinstance(state, tuple) and len(state) == 5, what)
    assert isinstance(state, tuple)
    dtype = state[0]
    _require(isinstance(dtype, Name) and dtype.module == "torch" and dtype != _SIZE, what)
    assert isinstance(dtype, Name)
    return dtype.name


def _pieces(places: Pairs, entries: Mapping[str, Plain]) -> Iterator[Piece]:
    for number, (key, place) in enumerate(places.items):
        index = _state(key, "MetadataIndex", f"the entry {number}")
        name = index.get("fqn")
        _require(isinstance(name, str) and name in entries, f"the entry {number}")
        assert isinstance(name, str)
        what = f"the place of {name}"
        at = index.get("offset")
        offsets = None if at is None else _counts(at, what)
        state = _state(place, "_StorageInfo", what)
        file, begin, length = (state.get(word) for word in ("relative_path", "offset", "length"))
        _require(type(begin) is int and type(length) is int, what)
        assert isinstance(begin, int)
        assert isinstance(length, int)
        transformed = bool(state.get("transform_descriptors"))
        checked = require_bare(file, METADATA)
        yield Piece(number, name, offsets, checked, begin, begin + length, transformed)


def _size(numbers: tuple[int, ...]) -> Call:
    return Call(_SIZE, (numbers,))


def _with(value: Plain, **attributes: Plain) -> Instance:
    """Return the same object with other attributes."""
    assert isinstance(value, Instance)
    assert isinstance(value.state, Pairs)
    state = {**(value.state.string_keys() or {}), **attributes}
    return Instance(value.cls, Pairs(tuple(state.items())))


def _resized(entry: Plain, shape: tuple[int, ...]) -> Instance:
    """Describe a tensor of another shape, in one part."""
    assert isinstance(entry, Instance)
    assert isinstance(entry.state, Pairs)
    chunks = (entry.state.string_keys() or {}).get("chunks")
    first = chunks[0] if isinstance(chunks, list) else None
    whole = _with(first, offsets=_size((0,) * len(shape)), sizes=_size(shape))
    return _with(entry, size=_size(shape), chunks=[whole])
