"""The header of an .npy array: a Python dictionary with three keys, read by our own parser."""

from __future__ import annotations

from resize_pos.core.errors import ContainerError
from resize_pos.core.lazy_regex import lazy_regex

_KEY = lazy_regex(r"""\s*(['"])(descr|fortran_order|shape)\1\s*:\s*""")
_TEXT = lazy_regex(r"""(['"])([^'"\\]{0,64})\1""")
_BOOLEAN = lazy_regex(r"True|False")
_SHAPE = lazy_regex(r"\(([0-9L,\s]{0,4096})\)")
_NEXT = lazy_regex(r"\s*,?\s*")
_COUNT = lazy_regex(r"\s*([0-9]{1,19})L?\s*")  # Python 2 wrote an L after long integers
_MOST_AXES = 64  # the limit of numpy


def parse_header(text: str) -> tuple[str | None, bool, tuple[int, ...]]:
    """Read the type, the memory order and the shape; the type is None for records and objects."""
    text = text.strip()
    if not text.startswith("{"):
        raise _unknown()
    found: dict[str, str] = {}
    position = 1
    while text[position : position + 1] not in ("}", ""):
        key = _KEY.match(text, position)
        if key is None or key[2] in found:
            raise _unknown()
        if key[2] == "descr" and text.startswith("[", key.end()):
            return None, False, ()  # fields of a record: such an array is not read
        value = _VALUES[key[2]].match(text, key.end())
        if value is None:
            shown = text[key.end() : key.end() + 40]
            raise ContainerError(f"its {key[2]} {shown!r} is not valid.")
        found[key[2]] = value[value.re.groups]
        after = _NEXT.match(text, value.end())
        assert after is not None  # the pattern also matches the empty string
        position = after.end()
        if "," not in after[0] and text[position : position + 1] != "}":
            raise _unknown()
    if text[position:] != "}" or len(found) != 3:
        raise _unknown()
    return found["descr"], found["fortran_order"] == "True", _shape(found["shape"])


_VALUES = {"descr": _TEXT, "fortran_order": _BOOLEAN, "shape": _SHAPE}


def _shape(text: str) -> tuple[int, ...]:
    *parts, last = text.split(",")
    if last.strip():
        parts.append(last)
        if len(parts) == 1:
            raise ContainerError(f"its shape ({text[:40]}) is not valid: it is no tuple.")
    counts = [_COUNT.fullmatch(part) for part in parts]
    if len(counts) > _MOST_AXES:
        raise ContainerError(f"the array has {len(counts)} axes; at most {_MOST_AXES} are read.")
    sizes = tuple(int(count[1]) for count in counts if count is not None)
    if len(sizes) != len(counts) or any(size >= 2**63 for size in sizes):
        raise ContainerError(f"its shape ({text[:40]}) is not valid.")
    return sizes


def _unknown() -> ContainerError:
    return ContainerError("the header does not state descr, fortran_order and shape.")
