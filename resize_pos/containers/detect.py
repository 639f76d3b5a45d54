"""Which formats there are, and which one a file or folder has.

A new format is one package and one row of `FORMATS`. Every list of suffixes in the program is
derived from these rows. A file is recognised by its content, not by its name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.io.source_file import SourceFile
from resize_pos.core.errors import ContainerError, OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

if TYPE_CHECKING:
    from resize_pos.containers.base import Container

_LOOKED_AT = 512  # bytes at the start of a file

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")

_AFTER_VERSION = (b"\x12", b"\x1a", b"\x22", b"\x28", b"\x32", b"\x3a", b"\x42")

_INDEX = lazy_regex(r"(?P<weights>.+)\.index(\.[\w-]+)?\.json")

# torch's distributed checkpoints: a folder with this file and pieces that it describes.
DISTRIBUTED_INDEX, DISTRIBUTED_PIECE = ".metadata", ".distcp"


def is_index(name: str) -> bool:
    """Tell by its name whether a file is the index of a sharded checkpoint."""
    return _INDEX.fullmatch(name) is not None


def is_index_of_weights(name: str) -> bool:
    """Return whether a file is the index of shards whose names end in a known suffix."""
    found = _INDEX.fullmatch(name)
    return found is not None and found["weights"].endswith(WEIGHT_SUFFIXES)


def is_distributed(names: Iterable[str]) -> bool:
    """Tell from the names in a folder whether it is a distributed checkpoint."""
    present = set(names)
    return DISTRIBUTED_INDEX in present and any(n.endswith(DISTRIBUTED_PIECE) for n in present)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path that may be a checkpoint, and what was seen of it."""

    path: Path
    is_folder: bool
    start: bytes  # the first bytes of a regular file

    @classmethod
    def of(cls, path: Path) -> Candidate:
        """Read the start of a file; read errors are reported later, by the format that opens it."""
        if isinstance(path, RemotePath):
            return cls._of_remote(path)
        try:
            if stat.S_ISDIR(path.stat().st_mode):
                return cls(path, True, b"")
            return cls(path, False, SourceFile.of(path).beginning(_LOOKED_AT))
        except (OSError, ValueError, ContainerError):
            return cls(path, False, b"")

    @classmethod
    def _of_remote(cls, path: RemotePath) -> Candidate:
        """Read the start of an object; if there is none, see whether the URL is a folder."""
        from resize_pos.containers.remote.tree import folder_exists, may_be_file

        if may_be_file(path):
            return cls(path, False, SourceFile.of(path).beginning(_LOOKED_AT))
        return cls(path, folder_exists(path), b"")

    @property
    def is_zip(self) -> bool:
        """Whether it is an archive that has at least one record."""
        return self.start[:4] == b"PK\x03\x04"


def _is_distributed(found: Candidate) -> bool:
    if not found.is_folder:
        return False
    if isinstance(found.path, RemotePath):
        return is_distributed(entry.name for entry in found.path.iterdir())
    with contextlib.suppress(OSError), os.scandir(found.path) as entries:
        return is_distributed(entry.name for entry in entries if entry.is_file())
    return False


def _is_folder(found: Candidate) -> bool:
    return found.is_folder


def _is_index(found: Candidate) -> bool:
    return is_index(found.path.name)


def _is_safetensors(found: Candidate) -> bool:
    return found.start[8:9] == b"{" and not found.is_zip


def _is_torch_zip(found: Candidate) -> bool:
    """Recognise an archive of torch.save by its first record, or because it has no .npy members."""
    if not found.is_zip:
        return False
    name_length = int.from_bytes(found.start[26:28], "little")
    if found.start[30 : 30 + name_length].endswith(b"/data.pkl"):
        return True
    from resize_pos.containers.npz.file import holds_arrays

    return not holds_arrays(found.path)


def _is_torch_legacy(found: Candidate) -> bool:
    """Recognise a pickle of torch before 1.6: it begins with a long number, framed or not.

    A safetensors file with a certain header length begins with the same bytes, so the brace after
    them is checked, too.
    """
    start = found.start
    return start[:2] in _PICKLES and start[2:3] in (b"\x8a", b"\x95") and start[8:9] != b"{"


def _is_onnx(found: Candidate) -> bool:
    """Recognise a model by its first fields: the version of the format, then one of those after it.

    The numbers of the fields are 1, and 2 to 8; all but the version of the model are strings. A
    TensorFlow SavedModel begins alike, with version 1; torch never wrote one below 3.
    """
    start = found.start
    return start[:1] == b"\x08" and b"\x03" <= start[1:2] < b"\x80" and start[2:3] in _AFTER_VERSION


def _is_npz(found: Candidate) -> bool:
    return found.is_zip


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which checkpoints are stored."""

    name: str
    recognised: Callable[[Candidate], bool]
    opener: str  # MODULE:FUNCTION below this package, imported only when it is needed
    suffixes: tuple[str, ...] = ()  # of files of weights
    writer: str | None = None  # the module that writes a new file from tensors of another format
    is_graph: bool = False  # holds a program, too; beside other weights it is an export of them


# The first row that recognises a file opens it. Suffixes are listed in order of preference: the
# first weights found in a folder take precedence, and the others are treated as copies of them.
FORMATS: tuple[Format, ...] = (
    Format("distributed", _is_distributed, "dcp.checkpoint:DistributedCheckpoint.open"),
    Format("folder", _is_folder, "model_folder:ModelFolder.open"),
    Format("sharded", _is_index, "sharded:ShardedCheckpoint.open"),
    Format(
        "safetensors",
        _is_safetensors,
        "safetensors.file:SafetensorsFile.open",
        (".safetensors",),
        "safetensors.new_file",
    ),
    Format(
        "torch",
        _is_torch_zip,
        "torch.archive:open_archive",
        (".bin", ".pt", ".pth", ".ckpt", ".pth.tar"),
        "torch.new_checkpoint",
    ),
    Format("torch", _is_torch_legacy, "torch.legacy_stream:TorchLegacy.open"),
    Format("numpy", _is_npz, "npz.file:NpzFile.open", (".npz",)),
    Format("onnx", _is_onnx, "onnx.file:open_model", (".onnx",), is_graph=True),
)

# An unrecognised file is opened as safetensors; that reader's error says what the file looks like.
_DEFAULT = next(row for row in FORMATS if row.name == "safetensors")

WEIGHT_SUFFIXES = tuple(suffix for row in FORMATS for suffix in row.suffixes)
GRAPH_SUFFIXES = tuple(suffix for row in FORMATS if row.is_graph for suffix in row.suffixes)
SAFETENSORS_SUFFIX = _DEFAULT.suffixes[0]
_USUAL = {"safetensors": SAFETENSORS_SUFFIX, "torch": ".pth", "numpy": ".npz"}


def open_container(path: Path) -> Container:
    """Open a checkpoint by its content, whatever its name; only its header is read."""
    candidate = Candidate.of(path)
    row = next((row for row in FORMATS if row.recognised(candidate)), None)
    if row is None:
        _refuse_foreign(candidate)
        row = _DEFAULT
    found: Container = imported(row.opener)(path)
    return found


def _refuse_foreign(candidate: Candidate) -> None:
    """Say what a file is that no format recognises, if that can be told."""
    from resize_pos.containers.foreign import describe

    kind = describe(candidate.start, candidate.path.name) if candidate.start else None
    if kind is not None:
        raise ContainerError(
            f"{candidate.path.name}: this is {kind.what}, not a checkpoint that can be read.",
            kind.hint,
        )


# Suffixes of formats that are not written. A file of that name would be taken for one.
_FOREIGN = {
    **dict.fromkeys((".txt", ".log", ".md", ".rst", ".tex"), "text"),
    **dict.fromkeys((".pdf", ".doc", ".docx", ".odt", ".ppt", ".pptx"), "a document"),
    **dict.fromkeys((".html", ".htm", ".xml", ".css"), "a web page"),
    **dict.fromkeys((".csv", ".tsv", ".xls", ".xlsx", ".parquet", ".arrow"), "a data table"),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".ini", ".cfg", ".jsonl"), "settings"),
    **dict.fromkeys((".py", ".ipynb", ".sh", ".js", ".c", ".cpp"), "a program"),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".svg"), "an image"),
    **dict.fromkeys((".tif", ".tiff", ".ico", ".heic"), "an image"),
    **dict.fromkeys((".mp3", ".wav", ".mp4", ".avi", ".mov", ".mkv"), "a recording"),
    **dict.fromkeys((".bz2", ".xz", ".zst", ".7z", ".rar", ".tgz"), "an archive"),
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".keras": "Keras",
    ".msgpack": "Flax msgpack",
    ".gguf": "GGUF",
    ".ggml": "GGML",
    ".tflite": "TFLite",
    ".pb": "TensorFlow",
    ".engine": "TensorRT",
    ".mlmodel": "Core ML",
    ".mlpackage": "Core ML",
    ".ot": "rust-bert",
    ".npy": "numpy array",
    ".zip": "zip",
    ".tar": "tar",
    ".gz": "gzip",
    ".json": "JSON",
}
_NOT_OF_WEIGHTS = _FOREIGN.keys() - {".tar", ".zip"}  # torch's own documents name files *.tar


def named_format(path: Path) -> Format | None:
    """Return the format that the suffix of a file names."""
    name = path.name.lower()
    return next((row for row in FORMATS if name.endswith(row.suffixes)), None)


def format_of(output: Path, source: Path) -> Format | None:
    """Return the format that an output is to have; None: that of its source.

    Refuse a suffix of a format that is not written, unless the source itself has it.
    """
    row, suffix = named_format(output), output.suffix.lower()
    if row is not None or suffix == source.suffix.lower():
        return row
    if suffix in _FOREIGN:
        raise OutputError(
            f"{output}: {suffix} names a file format ({_FOREIGN[suffix]}) that resize-pos does not "
            "write.",
            hint=f"name it *{SAFETENSORS_SUFFIX} or *{_USUAL['torch']}.",
        )
    if suffix:
        _refuse_mistyped(output, suffix)
    return None


def _refuse_mistyped(output: Path, suffix: str) -> None:
    """Refuse a suffix that is nearly a known one: loaders choose the format by the suffix."""
    from difflib import get_close_matches  # only an unknown suffix needs it

    near = get_close_matches(suffix, WEIGHT_SUFFIXES, n=1, cutoff=_ALMOST)
    if near and len(suffix) > len(".pt"):
        right = output.with_suffix(near[0])
        raise OutputError(
            f"{output}: {suffix} names no file format.", hint=f"did you mean {right}?"
        )


_ALMOST = 0.85  # of the letters: .safetensor, .pht; not .part or .best


def unnamed_format(output: Path, source: Path, kind: str) -> str | None:
    """Say which format a file gets whose suffix names none; None if its source is named alike."""
    if named_format(output) is not None or output.suffix == source.suffix:
        return None
    usual = suffix_by_content(source)
    advice = f"; most loaders expect {output.name}{usual}" if usual in WEIGHT_SUFFIXES else ""
    return f"the name {output.name} states no file format: it is written as {kind}{advice}."


def split_suffix(path: Path) -> tuple[str, str]:
    """Split a file name into stem and suffix; `.pth.tar` is one suffix."""
    known = [suffix for suffix in WEIGHT_SUFFIXES if path.name.lower().endswith(suffix)]
    length = max(map(len, known), default=len(path.suffix))
    return path.name[: len(path.name) - length], path.name[len(path.name) - length :]


def suffix_by_content(path: Path) -> str:
    """Return a file's suffix; if it names another format than the file has, the right one."""
    suffix = split_suffix(path)[1]
    named = next((row for row in FORMATS if suffix.lower() in row.suffixes), None)
    candidate = Candidate.of(path)
    found = next((row for row in FORMATS if row.recognised(candidate)), None)
    if named is None and suffix.lower() not in _NOT_OF_WEIGHTS:
        return suffix
    if found is None or found.name in (named.name if named else "", "sharded"):
        return suffix
    return _USUAL.get(found.name, suffix)


def imported(place: str) -> Any:
    """Import what a row of the table names."""
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(f"{__package__}.{module}"))
