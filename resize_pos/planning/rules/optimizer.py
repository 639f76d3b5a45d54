"""Optimizer state follows its parameter: found through groups and shapes, resized or dropped.

Most optimizers number their parameters and store no names. A state entry belongs to a table in four
cases: the optimizer did store names; only one parameter and one entry have the table's shape; all
parameters of that shape change in the same way; or the order of the parameters decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from resize_pos.containers.base import OptimizerState
from resize_pos.core.errors import TableError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.notes import Note
from resize_pos.core.operations import Rebuild, Resample, ResizeState
from resize_pos.core.request import Request
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import Action, OptimizerTensor, Step

RESIZE, DROP = "resize", "drop"
CHOICES = (RESIZE, DROP)

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")  # of parallel, compiled models


@dataclass(frozen=True, slots=True)
class _Slot:
    """The state of one parameter."""

    key: str
    group: int
    entry: str  # its name in the checkpoint
    fields: tuple[TensorInfo, ...]

    def has(self, shape: tuple[int, ...]) -> bool:
        """Whether it has a field of this shape."""
        return any(info.shape == shape for info in self.fields)

    def has_factors(self, shape: tuple[int, ...]) -> bool:
        """Whether it can be the factored state of a parameter of this shape, as Adafactor's is."""
        shapes = [info.shape for info in self.fields]
        rows, columns = shape[:-1], (*shape[:-2], *shape[-1:])
        return len(shape) > 1 and rows in shapes and columns in shapes

    def obstacle(self, shape: tuple[int, ...]) -> str:
        """Return what cannot be interpolated in it; empty if everything can."""
        for info in self.fields:
            if info.shape == shape and not DTYPES[info.dtype].floating:
                return f"{info.name} is stored as {info.dtype}"
            if info.shape != shape and info.elements != 1:
                return f"{info.name} has the shape {list(info.shape)}"
        return ""


@dataclass(frozen=True, slots=True)
class _Matched:
    """The entries that belong to one table. If not `certain`, the entries that may belong to it."""

    slots: tuple[_Slot, ...]
    reason: str
    certain: bool = True


def optimizer_steps(
    steps: Sequence[Step],
    tensors: Mapping[str, TensorInfo],
    optimizers: Sequence[OptimizerState],
    request: Request,
) -> tuple[Step, ...]:
    """Plan what happens to the optimizer state of every table that changes."""
    changing = [step for step in steps if _is_trained(step)]
    planned: dict[str, Step] = {}
    for optimizer in optimizers:
        slots = _slots(optimizer, tensors)
        for step in changing:
            matched = _match(step, changing, tensors, optimizer, slots)
            for state in _plan(step, matched, optimizer, request) if matched else ():
                _require_agreement(planned.get(state.name), state)
                planned.setdefault(state.name, state)
    return tuple(planned[name] for name in tensors if name in planned)


def optimizer_notes(steps: Sequence[Step]) -> tuple[Note, ...]:
    """Say that the state of weights that `--attention-scale` scales is copied unchanged.

    A gradient at the new size cannot be computed from the old one, so no factor would be exact.
    """
    scaled = sum(step.action is Action.SCALE for step in steps)
    if not scaled:
        return ()
    text = (
        f"--attention-scale: the optimizer's state of the {scaled} scaled tensors is copied "
        "unchanged; its averages adapt within the first steps of training."
    )
    return (Note(text),)


def _is_trained(step: Step) -> bool:
    changed = step.action in (Action.RESIZE, Action.REGENERATE)
    buffer = isinstance(step.operation, Rebuild)
    return changed and not buffer and DTYPES[step.table.tensor.dtype].floating


def _slots(optimizer: OptimizerState, tensors: Mapping[str, TensorInfo]) -> tuple[_Slot, ...]:
    keys = {key: group for group, keys in enumerate(optimizer.groups) for key in keys}
    numbered = all(key.isdecimal() for key in keys)
    fields: dict[str, list[TensorInfo]] = {}
    prefix = f"{optimizer.state}."
    for name, info in tensors.items():
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            key = rest.partition(".")[0] if numbered else rest.rpartition(".")[0]
            fields.setdefault(key, []).append(info)
    order = [key for key in keys if key in fields]
    return tuple(_Slot(key, keys[key], prefix + key, tuple(fields[key])) for key in order)


def _match(
    step: Step,
    changing: Sequence[Step],
    tensors: Mapping[str, TensorInfo],
    optimizer: OptimizerState,
    slots: Sequence[_Slot],
) -> _Matched | None:
    table, shape = step.table, step.table.tensor.shape
    model = next((names for names in optimizer.models if table.name in names), None)
    # The state of a bias of 64 looks like the factors of a 64×64 weight: whole shapes come first.
    fitting = tuple(slot for slot in slots if slot.has(shape))
    fitting = fitting or tuple(slot for slot in slots if slot.has_factors(shape))
    names = _names(optimizer)
    if names:
        own = tuple(slot for slot in slots if _is_name(names.get(slot.key, ""), table.name))
        return _Matched(own, "the optimizer names its parameters") if own else None
    if not fitting or model is None:
        return None
    alike = [name for name in model if tensors[name].shape == shape]
    shown = list(shape)
    if len(alike) == len(fitting) == 1:
        return _Matched(fitting, f"the only parameter and the only entry of shape {shown}")
    same = {s.table.name for s in changing if _geometry(s) == _geometry(step)}
    if set(alike) <= same and len(fitting) <= len(alike):
        return _Matched(fitting, f"every parameter of shape {shown} changes in the same way")
    if len(alike) == len(fitting) and len({slot.group for slot in fitting}) == 1:
        place = alike.index(table.name)
        reason = f"number {place + 1} of {len(alike)} parameters of shape {shown}, in order"
        return _Matched(fitting[place : place + 1], reason)
    reason = f"{len(alike)} parameters and {len(fitting)} entries have the shape {shown}"
    return _Matched(fitting, reason, certain=False)


def _names(optimizer: OptimizerState) -> Mapping[str, str]:
    """Return the parameter name of each key, if the optimizer stored it."""
    named: dict[str, str] = {}
    for keys, names in zip(optimizer.groups, optimizer.parameters, strict=True):
        if len(keys) == len(names):
            named |= dict(zip(keys, names, strict=True))
        named |= {key: key for key in keys if not key.isdecimal()}
    return named


def _is_name(parameter: str, tensor: str) -> bool:
    for wrapper in _WRAPPERS:
        parameter, tensor = parameter.replace(wrapper, ""), tensor.replace(wrapper, "")
    return bool(parameter) and (tensor == parameter or tensor.endswith(f".{parameter}"))


def _geometry(step: Step) -> object:
    table = step.table
    return (table.layout, table.prefix, table.grid, table.suffix, step.target, step.operation)


def _plan(
    step: Step, matched: _Matched, optimizer: OptimizerState, request: Request
) -> Iterator[Step]:
    shape, name = step.table.tensor.shape, step.table.name
    # R⁺ has negative weights, so second moments would be clamped at 0, and Adam divides by them.
    mixing = step.table.role is Role.MIXING
    if mixing and request.optimizer == RESIZE and matched.slots:
        raise TableError(
            f"{matched.slots[0].entry} is the optimizer's state of {name}, a layer over patches, "
            "and the moments of such a layer cannot be interpolated.",
            hint="drop --optimizer resize: it is then removed, and initialised again.",
        )
    if mixing or request.optimizer == DROP:
        doubt = "" if matched.certain else "may belong to "
        for slot in matched.slots:
            for info in slot.fields:
                if info.shape == shape or info.elements != 1:
                    yield Step(
                        step.table,
                        Action.DROP,
                        step.table.grid,
                        info.shape,
                        None,
                        f"{doubt}{name}: removed; the optimizer initialises it again",
                        state=_state(info, slot, matched),
                    )
        return
    if not matched.certain:
        raise _ambiguous(step, matched, optimizer)
    for slot in matched.slots:
        obstacle = slot.obstacle(shape)
        if obstacle:
            raise TableError(
                f"{slot.entry} is the optimizer's state of {name}, and cannot be interpolated: "
                f"{obstacle}.",
                hint="--optimizer drop removes it, and the optimizer then initialises it again.",
            )
        for info in slot.fields:
            if info.shape == shape:
                yield replace(
                    step,
                    state=_state(info, slot, matched),
                    action=Action.RESIZE,
                    operation=_operation(step, request),
                    reason=f"{step.reason}, with {name}",
                    own_convention=None,
                )


def _operation(step: Step, request: Request) -> ResizeState:
    """Interpolate like the table. A recomputed table states no method, so use the request's."""
    how = step.operation
    if how is None or isinstance(how, ResizeState) or step.action is not Action.RESIZE:
        return ResizeState(Resample(request.resampling))
    if isinstance(how, Resample):
        how = Resample(how.resampling)  # moments are averages of gradients: no norm to restore
    return ResizeState(how)


def _state(info: TensorInfo, slot: _Slot, matched: _Matched) -> OptimizerTensor:
    reason = f"state {slot.key} of the optimizer, group {slot.group}: {matched.reason}"
    return OptimizerTensor(info, slot.entry, (reason,))


def _require_agreement(one: Step | None, other: Step) -> None:
    if one is not None and one.action is Action.RESIZE and _geometry(one) != _geometry(other):
        raise TableError(
            f"{one.name} could be the state of {one.table.name} or of {other.table.name}, which "
            "change differently.",
            hint="--optimizer drop removes it, and the optimizer then initialises it again.",
        )


def _ambiguous(step: Step, matched: _Matched, optimizer: OptimizerState) -> TableError:
    keys = ", ".join(slot.key for slot in matched.slots[:8])
    return TableError(
        f"{optimizer.state}: the entry of {step.table.name} cannot be determined: "
        f"{matched.reason} (entries {keys}).",
        hint="--optimizer drop removes all of these; the optimizer then initialises them again; "
        "--optimizer resize needs an optimizer that was built with named parameters "
        "(model.named_parameters()), or a checkpoint without the optimizer.",
    )
