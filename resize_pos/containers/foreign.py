"""Files that are no checkpoints that can be read: what they are, and what to do instead.

Used only when a file was not recognised. A file is named by its first bytes; by its name only where
a format has no mark of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from resize_pos.core.fast_dataclass import dataclass

_LOOKED_AT = 64  # bytes that show whether a file is text

_FROM_TORCH = "Convert the torch checkpoint that it was made from, then export it again."
_IMAGE = "Name the weights of the model, not an image."
_ARRAYS = "Save its arrays as .safetensors or .npz, and convert that file."


def _is_webp(start: bytes) -> bool:
    return start[:4] == b"RIFF" and start[8:12] == b"WEBP"


def _is_tflite(start: bytes) -> bool:
    return start[4:8] == b"TFL3"


def _is_tar(start: bytes) -> bool:
    return start[257:262] == b"ustar"


def _is_saved_model(start: bytes) -> bool:
    return start[:3] == b"\x08\x01\x12"


def _is_msgpack(start: bytes) -> bool:
    """Recognise a map whose first key is a short text, as Flax writes it."""
    if len(start) < 3:
        return False
    at = 1 if 0x81 <= start[0] <= 0x8F else {0xDE: 3, 0xDF: 5}.get(start[0], 0)
    if not at or len(start) <= at or not 0xA1 <= start[at] <= 0xBF:
        return False
    key = start[at + 1 : at + 1 + (start[at] & 0x1F)]
    return bool(key) and re.fullmatch(rb"[\w./ -]+", key) is not None


def _is_text(start: bytes) -> bool:
    part = start[:_LOOKED_AT]
    if re.fullmatch(rb"[\t\n\r\x20-\x7e\x80-\xff]+", part) is None:
        return False
    return sum(byte < 0x80 for byte in part) > len(part) / 2  # the others: letters in UTF-8


@dataclass(frozen=True, slots=True)
class Foreign:
    """One kind of file, with its name for a person and advice."""

    what: str
    hint: str
    marks: tuple[bytes, ...] = ()  # with which such a file begins
    looks_so: Callable[[bytes], bool] | None = None  # by its first bytes, where no mark is enough
    named: str = "(?!)"  # a pattern for its name

    def fits(self, start: bytes, name: str) -> bool:
        """Whether a file is of this kind."""
        if self.marks and start.startswith(self.marks):
            return True
        if self.looks_so is not None and self.looks_so(start):
            return True
        return re.search(self.named, name, re.I) is not None


# The first row that fits names the file: marks of several bytes first, guesses last.
_KINDS: tuple[Foreign, ...] = (
    Foreign(
        "a git-LFS pointer",
        "Fetch the weights with `git lfs pull`.",
        (b"version https://git-lfs",),
    ),
    Foreign("a JPEG image", _IMAGE, (b"\xff\xd8\xff",)),
    Foreign("a PNG image", _IMAGE, (b"\x89PNG",)),
    Foreign("a GIF image", _IMAGE, (b"GIF8",)),
    Foreign("a WebP image", _IMAGE, looks_so=_is_webp),
    Foreign("a PDF document", "Name the weights of the model.", (b"%PDF",)),
    Foreign("a zip archive", "Unpack it, and name the weights inside.", (b"PK\x03\x04",)),
    Foreign(
        "a pickle",
        "Only pickles that torch.save wrote are read.",
        (
            b"\x80\x02",
            b"\x80\x03",
            b"\x80\x04",
            b"\x80\x05",
        ),
    ),
    Foreign(
        "a web page",
        "The download saved an error or a login page; try it again.",
        (b"<",),
    ),
    Foreign("JSON text", "Name the weights, not their config or index.", (b"{",)),
    Foreign(
        "a GGUF file",
        "Convert the original checkpoint, then make the GGUF file again.",
        (b"GGUF",),
    ),
    Foreign(
        "an HDF5 file (Keras)",
        f"Load it with Keras. {_ARRAYS}",
        (b"\x89HDF",),
    ),
    Foreign("a numpy array", "Put it into an archive with numpy.savez.", (b"\x93NUMPY",)),
    Foreign("a gzip archive", "Unpack it first.", (b"\x1f\x8b",)),
    Foreign("an xz archive", "Unpack it first.", (b"\xfd7zXZ",)),
    Foreign("a bzip2 archive", "Unpack it first.", (b"BZh",)),
    Foreign("a Zstandard archive", "Unpack it first.", (b"\x28\xb5\x2f\xfd",)),
    Foreign("a RAR archive", "Unpack it first.", (b"Rar!",)),
    Foreign("a 7z archive", "Unpack it first.", (b"7z\xbc\xaf",)),
    Foreign("a tar archive", "Unpack it first.", looks_so=_is_tar),
    Foreign("a TensorFlow Lite model", _FROM_TORCH, looks_so=_is_tflite),
    Foreign(
        "a part of a TensorFlow checkpoint",
        f"Read it with tf.train.load_checkpoint. {_ARRAYS}",
        named=r"\.(index|meta|data-\d{5}-of-\d{5})$",
    ),
    Foreign(
        "a TensorFlow model",
        f"Load it with TensorFlow. {_ARRAYS}",
        looks_so=_is_saved_model,
        named=r"\.pb$",
    ),
    Foreign("a Core ML model", _FROM_TORCH, named=r"\.mlmodel$"),
    Foreign(
        "a msgpack file (Flax)",
        f"Read it with flax.serialization.msgpack_restore. {_ARRAYS}",
        looks_so=_is_msgpack,
    ),
    Foreign("a text file", "Name the weights of the model.", looks_so=_is_text),
)


def describe(start: bytes, name: str = "") -> Foreign | None:
    """Return what a file is by its first bytes and its name; None if that is not known."""
    return next((kind for kind in _KINDS if kind.fits(start, name)), None)
