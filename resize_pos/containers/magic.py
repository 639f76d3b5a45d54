"""File formats by their first bytes: names and suffixes prove nothing."""

from __future__ import annotations

LENGTH = 512  # bytes that are looked at

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def is_zip(start: bytes) -> bool:
    """Tell an archive that has at least one record."""
    return start[:4] == b"PK\x03\x04"


def is_torch_zip(start: bytes) -> bool:
    """Tell an archive that begins as torch.save has it; that others begin otherwise is not said."""
    name_length = int.from_bytes(start[26:28], "little")
    return is_zip(start) and start[30 : 30 + name_length].endswith(b"/data.pkl")


def is_pickle(start: bytes) -> bool:
    """Tell a pickle as torch wrote it before 1.6: it begins with a long number, framed or not.

    A safetensors file whose header has just the right length begins alike, but for the brace.
    """
    return start[:2] in _PICKLES and start[2:3] in (b"\x8a", b"\x95") and start[8:9] != b"{"
