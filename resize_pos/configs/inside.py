"""Sizes that a checkpoint states beside its tensors: args.img_size, hyper_parameters, param_shapes.

They are listed for the user. With --edit-sizes, plain values that are exactly the old size are
changed in the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resize_pos.configs.advice import UNSAID, ConfigAdvice
from resize_pos.configs.keys import KeyKind
from resize_pos.configs.read import as_size
from resize_pos.configs.values import ConfigEdit, Transfer, new_value
from resize_pos.core.errors import OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.families.tables import Step

INSIDE = "inside"
_FILE = "the checkpoint"


@dataclass(frozen=True, slots=True)
class SizesInside:
    """The values that state the old geometry: those to be changed, and those left to the user."""

    edits: tuple[ConfigEdit, ...] = ()
    left: tuple[ConfigAdvice, ...] = ()

    @property
    def values(self) -> Mapping[str, object]:
        """The new value of every name that changes."""
        return {edit.key: edit.after for edit in self.edits}

    def require_written(self, settings: Mapping[str, object]) -> None:
        """Check the values that were read from the output."""
        for edit in self.edits:
            if settings.get(edit.key) != edit.after:
                raise OutputError(
                    f"the output states {settings.get(edit.key)} as {edit.key}, not {edit.after}; "
                    "nothing was kept."
                )


def sizes_inside(
    steps: Sequence[Step],
    request: Request,
    settings: Mapping[str, object],
    fixed: Mapping[str, str],
    *,
    edit: bool,
) -> SizesInside:
    """Find the values that still state the old geometry; `fixed` says which cannot be changed."""
    changes = [step for step in steps if step.action not in UNSAID]
    if not settings or not changes:
        return SizesInside()
    transfer = Transfer.of(steps, request)
    edits, left = [], []
    for name, value in settings.items():
        exact = _after_shape(name, value, changes)
        after = exact or _after(name, value, transfer)
        if after is None or after == value:
            continue
        reason = fixed.get(name) or _unlike(value, after)
        if not reason and exact is None and not _is_exact(name, value, transfer):
            reason = f"it is not exactly the old size, {transfer.old_size}"
        if reason or not edit:
            reason = reason or "--edit-sizes changes it"
            left.append(ConfigAdvice(INSIDE, _FILE, name, value, after, reason))
        else:
            edits.append(ConfigEdit(_FILE, (name,), value, after))
    return SizesInside(tuple(edits), tuple(left))


def _after_shape(name: str, value: object, changes: Sequence[Step]) -> list[int] | None:
    """Return the new shape of a tensor in DeepSpeed's param_shapes; None: it is none, or stays."""
    stated = _BEFORE_NAME.sub("", name)
    for step in changes:
        same = f".{step.name}".endswith(f".{stated}")
        if value == list(step.tensor.shape) and same:
            return list(step.target_shape)
    return None


def _after(name: str, value: object, transfer: Transfer) -> object:
    """Return the new value of a number; None: it does not state the old geometry."""
    key = _key(name)
    if _LENGTHS.search(key):
        return transfer.lengths.get(value) if type(value) is int else None
    if "window" in key:
        return new_value(KeyKind.WINDOW, value, transfer)
    if transfer.to_size is not None and transfer.states(as_size(value)):
        return new_value(KeyKind.SIZE, value, transfer)
    return None


_LENGTHS = lazy_regex("position|context|length")
_BEFORE_NAME = lazy_regex(r"^.*\bparam_shapes\.(?:\d+\.)?")


def _key(name: str) -> str:
    return next((word for word in reversed(name.split(".")) if not word.startswith("_")), "")


def _unlike(value: object, after: object) -> str:
    """Say why a new value cannot take the place of the old one; empty: it can."""
    if type(value) is int and type(after) is int:
        return ""
    if isinstance(value, list) and isinstance(after, list) and len(value) == len(after):
        return ""
    return "the file states one number, and two are needed"


def _is_exact(name: str, value: object, transfer: Transfer) -> bool:
    """Return whether it is the old size itself: in naming, a rest below a patch is ignored."""
    key = _key(name)
    if _LENGTHS.search(key):
        return True
    if "window" in key:
        window = transfer.from_window
        sides = None if window is None else [window.height, window.width]
        return sides is not None and (value == sides or [value, value] == sides)
    size = as_size(value)
    return size is not None and size in (transfer.from_size, transfer.stated)
