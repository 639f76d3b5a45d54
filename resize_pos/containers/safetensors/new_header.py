"""The header of a new safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from resize_pos.core.errors import ContainerError
from resize_pos.core.tensors import TensorInfo

_METADATA = "__metadata__"
_LONGEST_HEADER = 100_000_000  # the limit of the reference implementation


def fresh_header(
    infos: Mapping[str, TensorInfo], order: Sequence[str], metadata: Mapping[str, str]
) -> bytes:
    """Write the header of a file whose data lies in `order`, with its length before it."""
    header: dict[str, Any] = {_METADATA: {"format": "pt", **metadata}, **dict.fromkeys(infos)}
    if _METADATA in infos:
        raise ContainerError(f"a tensor is called {_METADATA}, which the format reserves.")
    position = 0
    for name in order:
        info, start = infos[name], position
        position += info.nbytes
        offsets = [start, position]
        header[name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    body = text.encode("utf-8", "backslashreplace")  # names that are not text arrive as surrogates
    body += b" " * (-len(body) % 8)
    if len(body) > _LONGEST_HEADER:
        raise ContainerError(
            f"the header takes {len(body)} bytes; the format allows {_LONGEST_HEADER}."
        )
    return len(body).to_bytes(8, "little") + body
