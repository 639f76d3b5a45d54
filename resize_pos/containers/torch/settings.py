"""Numbers that training code saved beside the tensors, such as args.img_size: read and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.containers.pickle.edit import PickleEditor, encode_signed
from resize_pos.containers.pickle.values import (
    Atom,
    Got,
    Made,
    PickledSequence,
    Ref,
    global_of,
    sequence_of,
    value_of,
)
from resize_pos.containers.size_settings import MOST_SETTINGS, MOST_SIDES, SAME_NAME, SIZE_KEYS
from resize_pos.core.fast_dataclass import dataclass

_SHARED = "the file stores this value once for several places"


@dataclass(frozen=True, slots=True, eq=False)
class PickledSetting:
    """One number, or the numbers of a short list, a tuple or a torch.Size."""

    value: int | list[int]
    numbers: tuple[Atom, ...]  # where each number is written
    fixed: str = ""  # why it cannot be changed; empty: it can


def note_setting(settings: dict[str, PickledSetting], name: str, ref: Ref) -> None:
    """Add a value to `settings` if its name says that it may be a size or a length."""
    found = _read(ref)
    if found is None or len(settings) >= MOST_SETTINGS:
        return
    key = next((w for w in reversed(name.split(".")) if not w.startswith("_")), "")
    if key in SIZE_KEYS or (isinstance(found.value, list) and _is_shape(settings, name)):
        settings[name] = replace(found, fixed=SAME_NAME) if name in settings else found


def change_settings(
    editor: PickleEditor, settings: Mapping[str, PickledSetting], values: Mapping[str, object]
) -> None:
    """Write new numbers over the old ones; each value has as many numbers as before."""
    for name, value in values.items():
        setting = settings[name]
        assert not setting.fixed
        new = value if isinstance(value, list) else [value]
        for atom, number in zip(setting.numbers, new, strict=True):
            if atom.value != number:
                editor.replace(atom, encode_signed(number))


def _is_shape(settings: Mapping[str, PickledSetting], name: str) -> bool:
    """Return whether it is a shape in DeepSpeed's param_shapes, not a part of one."""
    return ".param_shapes." in f".{name}" and name.rpartition(".")[0] not in settings


def _read(ref: Ref) -> PickledSetting | None:
    value = value_of(ref)
    if isinstance(value, Atom):
        number = value.value
        if type(number) is not int:
            return None
        return PickledSetting(number, (value,), _SHARED if _is_shared([ref]) else "")
    around = [ref]
    if isinstance(value, Made) and global_of(value.call) == ("torch", "Size"):
        arguments = sequence_of(value.arguments) or ()
        if len(arguments) != 1:
            return None
        around += [value.arguments, arguments[0]]
        value = value_of(arguments[0])
    if not isinstance(value, PickledSequence) or not 0 < len(value.items) <= MOST_SIDES:
        return None
    atoms = [atom for atom in map(value_of, value.items) if isinstance(atom, Atom)]
    numbers = [atom.value for atom in atoms if type(atom.value) is int]
    if len(numbers) != len(value.items) or value.kind == "set":
        return None
    shared = _is_shared([*around, *value.items])
    return PickledSetting(numbers, tuple(atoms), _SHARED if shared else "")


def _is_shared(refs: Sequence[Ref]) -> bool:
    """Return whether one of these values is also read from the memo, here or elsewhere."""
    return any(isinstance(r, Got) or any(cell.gets for cell in r.cells or ()) for r in refs)
