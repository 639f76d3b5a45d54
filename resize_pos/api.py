"""The Python API: the verbs of the command line, and the same on tensors in memory.

Errors name keyword arguments, not flags of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from resize_pos.containers.io.remote_path import place
from resize_pos.core.axes import Layout
from resize_pos.core.errors import TableError, UsageError
from resize_pos.core.geometry import Grid
from resize_pos.core.options import JOB_OPTION_BY_NAME, JOB_OPTIONS, request_options
from resize_pos.core.python_calls import paths, public, shown
from resize_pos.core.request import GridLike, Request, SizeLike, choose_resampling, job_fields
from resize_pos.core.request_fields import Options, ResizeOptions
from resize_pos.report.files import require_report_targets, wants_pictures, write_reports
from resize_pos.report.inspection import Inspection
from resize_pos.report.report import Report
from resize_pos.run.inspection import inspect
from resize_pos.run.job import Job, output_place, run

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from resize_pos.report.verify_report import Verified
    from resize_pos.verify.compare import Comparison

PathLike = str | os.PathLike[str]
_Array = TypeVar("_Array", "NDArray[Any]", "torch.Tensor")


_OPTIONS = request_options()  # inspect_checkpoint has no target, and takes the others
_SOURCE = tuple(option for option in _OPTIONS if option.name != "to")


@public(*_SOURCE)
def inspect_checkpoint(
    path: PathLike, *, health: bool = False, pictures: bool = False, **options: Unpack[Options]
) -> Inspection:
    """Find the position tables of a checkpoint without reading a single weight; print the result.

    With `health` or `pictures` the tables' values are read, and nothing else.
    """
    return inspect(place(path), Request.make(**options), health=health, pictures=pictures)


@public(*_OPTIONS, *JOB_OPTIONS)
def resize_checkpoint(
    path: PathLike,
    to: SizeLike | None = None,
    *,
    output: PathLike | None = None,
    reports: PathLike | Iterable[PathLike] = (),
    push: str | None = None,
    push_pr: bool = False,
    **options: Unpack[ResizeOptions],
) -> Report:
    """Transfer a checkpoint, a file or a model folder, to another resolution; report what that did.

    `reports` names one or several files to write that down in: `.html`, `.md` or `.json`. `push`
    names a model on the hub, `org/name`, to which the output is uploaded: as a commit, or with
    `push_pr` as a pull request.

    >>> report = resize_checkpoint("vit.safetensors", to=384)  # doctest: +SKIP
    >>> report.output, report.verdict  # doctest: +SKIP
    """
    asked: dict[str, Any] = {n: v for n, v in options.items() if n not in JOB_OPTION_BY_NAME}
    written = [Path(name) for name in paths("reports", reports)]
    if push_pr and push is None:
        raise UsageError("--push-pr needs --push ORG/NAME.")
    job = Job(
        place(path),
        Request.make(to=to, **asked),
        hash_output=True,
        draw=wants_pictures(written),
        **output_place(output),
        **job_fields(options),
    )
    require_report_targets(written, force=job.force, sources=[job.source])
    if push is None:
        report = run(job)
    else:
        from resize_pos.run.push import push_target, pushed

        target = push_target(push, job, pull_request=push_pr)
        report = pushed(run(job), job, target, None)
    write_reports(report, written)
    return report


@public(*_OPTIONS)
def verify_checkpoint(
    output: PathLike,
    against: PathLike | None = None,
    *,
    to: SizeLike | None = None,
    trained: bool = False,
    model: str | None = None,
    model_args: Mapping[str, Any] | Iterable[str] = (),
    images: PathLike | None = None,
    **options: Unpack[Options],
) -> Verified:
    """Check a resized checkpoint against its source, in a model, and on images.

    `trained`: it was trained on after the resize, so its other tensors may differ.
    `model` is `timm:NAME`, `hf:FOLDER` or `open_clip:NAME`; `model_args` are arguments of its
    constructor, as a dictionary or as texts `KEY=VALUE`. `options` state what is known of the
    source, `to` (or `to_grid`) what is known of the output.
    """
    from resize_pos.run.verification import verify

    if isinstance(model_args, Mapping):
        model_args = [f"{key}={value}" for key, value in model_args.items()]
    return verify(
        place(output),
        None if against is None else place(against),
        Request.make(to=to, **options),
        trained=trained,
        model=model,
        model_args=_texts("model_args", model_args, "a dictionary, or texts KEY=VALUE"),
        images=None if images is None else Path(images),
    )


@public(*_OPTIONS)
def compare_checkpoints(
    *paths: PathLike, to: SizeLike | None = None, **options: Unpack[Options]
) -> Comparison:
    """Put versions of the same tables side by side: files, or one source by every convention."""
    from resize_pos.run.comparison import compare

    return compare(list(map(place, paths)), Request.make(to=to, **options))


def _texts(name: str, given: object, expected: str) -> tuple[str, ...]:
    """Read one text or several."""
    texts = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is {shown(given)}; expected {expected}.")
    return texts


def _check_flat(state_dict: object) -> None:
    """Refuse what is no state dict: the tables inside of it would silently stay as they are."""
    if not isinstance(state_dict, Mapping):
        raise UsageError(
            f"state_dict is {shown(state_dict)}; expected a dictionary of names and tensors.",
            hint="for a file, use resize_checkpoint(path, to=…); of a module, pass .state_dict().",
        )
    tensors = 0
    for name, value in state_dict.items():
        if isinstance(value, Mapping) and any(hasattr(inner, "shape") for inner in value.values()):
            raise UsageError(
                f"{name!r} holds a dictionary of tensors, not a tensor.",
                hint=f"pass that dictionary: state_dict[{name!r}].",
            )
        if not isinstance(name, str):
            raise UsageError(f"state_dict has the key {name!r}; expected names of tensors.")
        if hasattr(value, "detach"):
            tensors += 1
        elif getattr(value, "shape", ()):  # a number of numpy has an empty shape, and is no tensor
            raise UsageError(
                f"state_dict[{name!r}] is {shown(value)}; expected a torch tensor.",
                hint="make it one with torch.from_numpy(array).",
            )
    if not tensors:
        raise UsageError("state_dict holds no tensor, so there is nothing to resize.")


@overload
def resize_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    to: SizeLike | None = None,
    *,
    device: str = "cpu",
    with_report: Literal[False] = False,
    **options: Unpack[Options],
) -> dict[str, torch.Tensor]: ...


@overload
def resize_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    to: SizeLike | None = None,
    *,
    device: str = "cpu",
    with_report: Literal[True],
    **options: Unpack[Options],
) -> tuple[dict[str, torch.Tensor], Report]: ...


@public(*_OPTIONS)
def resize_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    to: SizeLike | None = None,
    *,
    device: str = "cpu",
    with_report: bool = False,
    **options: Unpack[Options],
) -> dict[str, torch.Tensor] | tuple[dict[str, torch.Tensor], Report]:
    """Transfer tensors in memory; every tensor that is not resized is passed through as it is.

    With `with_report` the new tables are also measured, and a report with the verdict is returned.
    """
    from resize_pos.run.in_memory import resize_tensors

    _check_flat(state_dict)
    resized = resize_tensors(
        state_dict, Request.make(to=to, **options), device, measure=with_report
    )
    result = dict(state_dict)
    for name, array in resized.tables.items():
        result[name] = _as_tensor(array, state_dict[name])
    return (result, resized.report) if with_report else result


@public(*_OPTIONS)
def fit_checkpoint(
    path: PathLike,
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    to: SizeLike | None = None,
    *,
    key: str | None = None,
    ignore_mismatched_sizes: bool = False,
    **options: Unpack[Options],
) -> tuple[dict[str, torch.Tensor], Report]:
    """Transfer a checkpoint to the shapes of a model; return a state dict for it, and a report.

    The size is read from the model: from the shapes of its tables, its config and its modules. No
    size has to be given; `to` states one where they leave doubt.

    `key` names the part of the checkpoint that holds the model (`state_dict`, `model_ema` …), if
    several do. With `ignore_mismatched_sizes`, tensors whose shape differs for another reason, such
    as a head for other classes, are left out; `report.left_out` lists them.

    >>> state, report = fit_checkpoint("vit.safetensors", model)  # doctest: +SKIP
    >>> model.load_state_dict(state)  # doctest: +SKIP
    """
    from resize_pos.run.in_memory import fit

    if isinstance(model, type):
        raise UsageError(f"the model is the class {model.__name__}; expected an instance of it.")
    if not isinstance(model, Mapping) and not hasattr(model, "state_dict"):
        raise UsageError(
            f"the model is a {type(model).__name__}; expected a torch module or its state dict."
        )
    request = Request.make(to=to, **options)
    return fit(
        place(path), model, request, key=key, ignore_mismatched_sizes=ignore_mismatched_sizes
    )


@public()
def resize_table(
    array: _Array,
    from_grid: GridLike,
    to_grid: GridLike,
    *,
    axes: str = "1 (p h w s) d",
    prefix: int = 0,
    suffix: int = 0,
    method: str | None = None,
    antialias: bool | None = None,
    like: str | None = None,
    restore_norms: bool = False,
    device: str = "cpu",
) -> _Array:
    """Resize one table, a numpy array or a torch tensor, in any axis pattern; its dtype is kept."""
    from resize_pos.transforms.absolute import resize_absolute

    values = _values(array)
    layout = Layout.parse(axes)
    source, target = _plane("from_grid", from_grid), _plane("to_grid", to_grid)
    reason = layout.mismatch(values.shape)
    if reason is None and layout.rows(values.shape) != prefix + source.cells + suffix:
        rows = layout.rows(values.shape)
        reason = f"{rows} rows where {prefix} + {source} + {suffix} were stated"
    if reason is not None:
        raise TableError(f"an array of shape {list(values.shape)} has {reason}.")
    resampling = choose_resampling(method, antialias, like)
    resized = resize_absolute(
        *(values, layout, prefix, source, suffix, target, resampling, device),
        restore_norms=restore_norms,
    )
    result: _Array = resized if values is array else _as_tensor(resized, array)
    return result


def _values(array: Any) -> NDArray[Any]:
    """Return an array as it is, and the values of a tensor."""
    from resize_pos.containers.state_dict import describe, to_numpy

    info = describe("array", array)
    if info is None or not (hasattr(array, "detach") or hasattr(array, "__array_interface__")):
        raise UsageError(f"array is {shown(array)}; expected a numpy array or a torch tensor.")
    values: NDArray[Any] = to_numpy(array, info.dtype) if hasattr(array, "detach") else array
    return values


def _as_tensor(array: NDArray[Any], like: Any) -> Any:
    """Return an array as a tensor; the dtype, the device and the gradient are those of another."""
    from resize_pos.containers.state_dict import describe, to_torch

    info = describe("array", like)
    assert info is not None  # it was read before
    return to_torch(array, info.dtype).to(like.device).requires_grad_(like.requires_grad)


def _plane(name: str, given: GridLike) -> Grid:
    grid = Grid.parse(given, name)
    if grid.depth:
        raise UsageError(f"{name} {grid} has three sides; expected one, or HEIGHTxWIDTH.")
    return grid


@public()
def param_groups(
    model: torch.nn.Module,
    report: Report | Iterable[str],
    lr: float,
    position_lr_scale: float = 1.0,
) -> list[dict[str, Any]]:
    """Split a model's parameters for an optimizer: the resized tables get a rate of their own.

    `report` is that of the conversion, or the names of the tables. A table is also found if
    the model puts a module around it, or is a part of the model that was saved.
    """
    if isinstance(report, Report):
        names = report.fine_tune.parameters
    else:
        names = _texts("report", report, 'a report, or names of tables such as ["pos_embed"]')
    if not hasattr(model, "named_parameters"):
        raise UsageError(f"model is {shown(model)}; expected a torch module.")
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    positions = {_parameter_name(name, named) for name in names}
    return [
        {"params": [p for name, p in named.items() if name not in positions], "lr": lr},
        {
            "params": [named[name] for name in named if name in positions],
            "lr": lr * position_lr_scale,
            "weight_decay": 0.0,
        },
    ]


def _parameter_name(table: str, named: Collection[str]) -> str:
    """Return the name that a table has in the model; one of the two may have more in front."""
    if table in named:
        return table
    alike = [n for n in named if n.endswith(f".{table}") or table.endswith(f".{n}")]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise TableError(
            f"the model has several trainable parameters called {table}: {', '.join(alike[:3])}.",
            hint="pass the full names of the tables instead of the report.",
        )
    raise TableError(
        f"the model has no trainable parameter called {table}.",
        hint="pass the model whose checkpoint was resized, with its parameters unfrozen.",
    )
