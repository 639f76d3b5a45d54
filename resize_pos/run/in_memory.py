"""Transfers in memory: of a state dict, and of a checkpoint to the shapes that a model has."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resize_pos.configs.model_types import FILE as MODEL_FILE
from resize_pos.configs.model_types import config_models
from resize_pos.configs.read import ConfigSize, config_sizes
from resize_pos.containers.base import Container, Copied, LeftOut
from resize_pos.containers.sources import open_source
from resize_pos.containers.state_dict import StateDict, describe, to_torch
from resize_pos.core.errors import GeometryError, TableError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.request import Request
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.tables import Located
from resize_pos.planning.locate import locate_in, locate_tables
from resize_pos.planning.memory_check import require_memory
from resize_pos.planning.plan import Plan, make_plan
from resize_pos.planning.rules.base import Surroundings
from resize_pos.report.report import Report, Status, TableReport
from resize_pos.verify.output_plan import of_output, target_request

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, eq=False)
class Resized:
    """New tables by name, and the report on them."""

    tables: Mapping[str, NDArray[Any]]
    report: Report


def resize_tensors(
    state_dict: Mapping[str, torch.Tensor], request: Request, device: str, *, measure: bool
) -> Resized:
    """Plan and compute the tables of a state dict. They are measured only on request."""
    started = time.perf_counter()
    container = StateDict.of(state_dict)
    # On the meta device there are shapes and no values: then names and shapes have to do.
    shapes_only = any(getattr(tensor, "is_meta", False) for tensor in state_dict.values())
    around = Surroundings(container.tensors, request, read=None if shapes_only else container.read)
    plan = make_plan(locate_tables(around), request)
    for step in plan.changes:
        if getattr(state_dict[step.name], "is_meta", False):
            raise UsageError(
                f"state_dict[{step.name!r}] is on the meta device, so it has no values.",
                hint="load the weights first, or use resize_checkpoint(path, to=…).",
            )
    tables, reports = _computed(container, plan, device, measure=measure)
    return Resized(tables, _report(container, plan, reports, started))


def _computed(
    container: Container, plan: Plan, device: str, *, measure: bool
) -> tuple[Mapping[str, NDArray[Any]], tuple[TableReport, ...]]:
    from resize_pos.run.compute import measured, transformed

    require_memory(plan)
    data = {
        step.name: container.peek(step.name, 0, container.tensors[step.name].nbytes)
        for step in plan.changes
    }
    tables = transformed(container, plan, data, device)
    if not measure:
        return tables.after, tuple(map(TableReport, plan.steps))
    return tables.after, measured(container, plan.steps, tables, (), draw=False)


def _report(
    container: Container, plan: Plan, tables: tuple[TableReport, ...], started: float
) -> Report:
    kept = container.copied_except([step.name for step in plan.changes])
    return Report(
        container.path,
        None,
        Status.RESIZED if plan.changes else Status.UNCHANGED,
        plan,
        tables,
        Copied(kept.tensors, kept.bytes),
        seconds=time.perf_counter() - started,
    )


def fit(
    path: Path,
    model: Any,
    request: Request,
    *,
    key: str | None = None,
    ignore_mismatched_sizes: bool = False,
) -> tuple[dict[str, torch.Tensor], Report]:
    """Transfer a checkpoint to the shapes of a model; return what the model loads, and a report."""
    started = time.perf_counter()
    container = open_source(path)
    shapes = _shapes(model)
    begin = _common_start(container, shapes, key)
    wanted = {begin + name: replace(info, name=begin + name) for name, info in shapes.items()}
    plan = _plan(container, wanted, model, request)
    left_out = _mismatched(container, wanted, plan, ignore=ignore_mismatched_sizes)
    tables, reports = _computed(container, plan, "cpu", measure=True)
    state = {}
    for name, info in container.tensors.items():
        if name.startswith(begin) and name not in {entry.name for entry in left_out}:
            array = tables[name] if name in tables else container.read(name)
            state[name.removeprefix(begin)] = to_torch(array, info.dtype)
    state = _renamed(state, model)
    own = {step.name: step.name.removeprefix(begin) for step in plan.steps}
    report = _report(container, plan, reports, started)
    return state, replace(report, copies=own if begin else {}, left_out=tuple(left_out))


def _renamed(state: dict[str, torch.Tensor], model: Any) -> dict[str, torch.Tensor]:
    """Give tensors the names of a transformers model that differ from those in its files.

    The library renames while it loads, so it is asked to. What it does not know keeps its name, and
    what it would make up is left out: strict loading then reports both.
    """
    if not hasattr(model, "from_pretrained") or not hasattr(model, "config"):
        return state
    names = model.state_dict().keys()
    if state.keys() <= names:
        return state
    loaded, found = type(model).from_pretrained(
        None, config=model.config, state_dict=dict(state), output_loading_info=True
    )
    made_up = set(found["missing_keys"]) | {entry[0] for entry in found["mismatched_keys"]}
    unknown = {name: state[name] for name in found["unexpected_keys"] if name in state}
    kept = {n: t for n, t in loaded.state_dict().items() if n not in made_up}
    return kept | unknown


def _shapes(model: Any) -> dict[str, TensorInfo]:
    """Describe the tensors of a model, or of a state dict."""
    state = model if isinstance(model, Mapping) else model.state_dict()
    found = {name: describe(name, tensor) for name, tensor in state.items()}
    return {name: info for name, info in found.items() if info is not None}


def _common_start(container: Container, shapes: Mapping[str, object], key: str | None) -> str:
    """Find what stands before the model's own names in the checkpoint, such as `model.`."""
    if key is not None:
        begin = f"{key}." if key and not key.endswith(".") else key
        if any(
            name.removeprefix(begin) in shapes
            for name in container.tensors
            if name.startswith(begin)
        ):
            return begin
        raise UsageError(f"{container.path.name}: no tensor of the model is below key={key!r}.")
    found: Counter[str] = Counter()
    for name in container.tensors:
        found.update(begin for begin in _starts(name) if name.removeprefix(begin) in shapes)
    if not found:
        example, own = next(iter(container.tensors), "nothing"), next(iter(shapes), "nothing")
        raise TableError(
            f"{container.path.name}: no tensor has a name that the model has; it holds {example} "
            f"…, the model has {own} …",
            hint="pass the part of the model that the checkpoint is for, such as model.backbone.",
        )
    most = max(found.values())
    best = [begin for begin, count in found.items() if count == most]
    if len(best) > 1:
        shown = ", ".join(repr(begin.rstrip(".")) for begin in best[:_MOST_NAMED])
        raise UsageError(
            f"{container.path.name}: holds the model {len(best)} times: {shown}.",
            hint=f"choose one: key={best[0].rstrip('.')!r}.",
        )
    return best[0]


def _starts(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(len(parts)):
        yield "".join(f"{part}." for part in parts[:count])


def _plan(
    container: Container, wanted: Mapping[str, TensorInfo], model: Any, request: Request
) -> Plan:
    """Plan the transfer to the geometry that the model's tensors and attributes show."""
    documents = _documents(model)
    sizes = (*config_sizes(documents), *_module_sizes(model))
    around = Surroundings(wanted, of_output(request), sizes, models=config_models(documents))
    ours = locate_in(container, replace(request, to_size=None, to_grid=None))
    target = _target(ours, locate_tables(around), request, container.path)
    stated = {entry.size for entry in sizes}
    if target.to_window is not None and not target.to_image and len(stated) == 1:
        target = replace(target, to_size=stated.pop())  # a window is never larger than its stage
    return make_plan(ours, target)


def _target(ours: Located, theirs: Located, request: Request, path: Path) -> Request:
    if not ours.tables and not ours.unsettled:
        raise TableError(
            f"{path.name}: no position table was found, so there is nothing to fit to a model.",
            hint="load the checkpoint as it is.",
        )
    target = target_request(ours, theirs, request, Path("the model"))
    # Growing a text table has no default method, here as elsewhere.
    return target if request.lengthen is not None else replace(target, lengthen=None)


def _documents(model: Any) -> dict[str, Any]:
    """Return the config of a transformers model, as the file beside its weights would state it."""
    config: Any = getattr(model, "config", None)
    return {MODEL_FILE: config.to_dict()} if hasattr(config, "to_dict") else {}


def _module_sizes(model: Any) -> Iterator[ConfigSize]:
    """Read the image sizes that modules of a model state, as timm's patch embedding does."""
    if not hasattr(model, "named_modules"):
        return
    for name, module in model.named_modules():
        size, patch = (_as_size(getattr(module, key, None)) for key in ("img_size", "patch_size"))
        if size is not None:
            yield ConfigSize("the model", f"{name}.img_size".lstrip("."), size, patch)


def _as_size(value: object) -> Size | None:
    match value:
        case bool():
            return None
        case int() if value > 0:
            return Size(value, value)
        case (int() as height, int() as width) if height > 0 and width > 0:
            return Size(height, width)
    return None


def _mismatched(
    container: Container, wanted: Mapping[str, TensorInfo], plan: Plan, *, ignore: bool
) -> Sequence[LeftOut]:
    """Compare the planned shapes with the model's; other shapes are refused, or left out."""
    planned = {step.name: step.target_shape for step in plan.steps}
    tables = {step.table.name for step in plan.steps}
    others = []
    for name, info in container.tensors.items():
        shape = planned.get(name, info.shape)
        if name not in wanted or wanted[name].shape == shape:
            continue
        words = f"{name} is {list(shape)}, and the model has {list(wanted[name].shape)}"
        if name in tables:
            raise GeometryError(
                f"{container.path.name}: after the transfer {words}.",
                hint="is it the same architecture, with the same patch size and class token?",
            )
        others.append(LeftOut(name, f"{list(shape)}, but {list(wanted[name].shape)} in the model"))
    if others and not ignore:
        raise TableError(
            f"{container.path.name}: {_some(entry.name for entry in others)} have another shape in "
            f"the model, and not because of the image size: {others[0].name} is "
            f"{others[0].reason}.",
            hint="a new head is usual: pass ignore_mismatched_sizes=True to leave them out, and "
            "load with strict=False.",
        )
    return others


def _some(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more
