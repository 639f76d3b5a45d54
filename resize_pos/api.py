"""The Python API: the verbs of the command line, and the same on tensors in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from resize_pos.containers.base import Container
from resize_pos.containers.detect import open_container
from resize_pos.containers.sources import open_source, resolve_source
from resize_pos.core.axes import Layout
from resize_pos.core.devices import check_device
from resize_pos.core.errors import TableError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.core.options import JOB_OPTIONS, Option, options_help, request_options
from resize_pos.core.request import GridLike, Request, SizeLike, choose_resampling
from resize_pos.core.request_fields import Options, ResizeOptions
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.tables import Located
from resize_pos.planning.locate import locate_in, locate_tables
from resize_pos.planning.plan import make_plan
from resize_pos.planning.rules.base import Surroundings
from resize_pos.quality.table_health import Health
from resize_pos.report.files import require_report_targets, wants_pictures, write_reports
from resize_pos.report.groups import group_key
from resize_pos.report.report import Report
from resize_pos.run.job import Job, output_place, run

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from resize_pos.quality.pictures import TablePictures
    from resize_pos.report.verify_report import Verified
    from resize_pos.verify.compare import Comparison

PathLike = str | os.PathLike[str]


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _documented(*options: Option) -> Callable[[_Function], _Function]:
    """List the keyword arguments that come from the table of options in a docstring."""

    def document(function: _Function) -> _Function:
        if function.__doc__ is not None:  # python -OO has none
            lines = options_help(options).replace("\n", "\n        ")
            function.__doc__ += f"\n    Options:\n        {lines}\n    "
        return function

    return document


_OPTIONS = tuple(option for option in request_options() if option.name != "to")


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a checkpoint holds, read from its header."""

    path: Path
    format: str
    tensors: Mapping[str, TensorInfo]
    located: Located
    health: Mapping[str, Health] = field(default_factory=dict)  # by table; only when asked for
    pictures: Mapping[str, TablePictures] = field(default_factory=dict)  # likewise; one of alike


@_documented(*_OPTIONS)
def inspect_checkpoint(
    path: PathLike, *, health: bool = False, pictures: bool = False, **options: Unpack[Options]
) -> Inspection:
    """Find the position tables of a checkpoint without reading a single weight.

    With `health` or `pictures` the tables' values are read, and nothing else.
    """
    source = resolve_source(Path(path))
    container = open_container(source.path)
    located = locate_in(container, Request.make(**options))
    found = {}
    if health:
        from resize_pos.quality.table_health import examine

        for table in located.tables:
            if DTYPES[table.tensor.dtype].floating:
                found[table.name] = examine(table, container.read(table.name))
    drawn = _draw(container, located) if pictures else {}
    shown = container.path if source.path == Path(path) else Path(path)
    return Inspection(shown, container.format, container.tensors, located, found, drawn)


def _draw(container: Container, located: Located) -> dict[str, TablePictures]:
    """Compute what there is to see of each kind of table; of several alike, of the first."""
    from resize_pos.quality.pictures import picture_table

    first = {group_key(table): table for table in reversed(located.tables)}
    return {
        table.name: picture_table(table, container.read(table.name))
        for table in first.values()
        if DTYPES[table.tensor.dtype].floating and table.role is not Role.DERIVED
    }


@_documented(*_OPTIONS, *JOB_OPTIONS)
def resize_checkpoint(
    path: PathLike,
    to: SizeLike | None = None,
    *,
    output: PathLike | None = None,
    reports: Iterable[PathLike] = (),
    **options: Unpack[ResizeOptions],
) -> Report:
    """Transfer a checkpoint, a file or a model folder, to another resolution; report what that did.

    `reports` are files to write that down in: `.html`, `.md` or `.json`.

    >>> report = resize_checkpoint("vit.safetensors", to=384)  # doctest: +SKIP
    >>> report.output, report.verdict  # doctest: +SKIP
    """
    given: dict[str, Any] = {name: v for name, v in options.items() if v is not None}
    for_job = {
        option.name: given.pop(option.name) for option in JOB_OPTIONS if option.name in given
    }
    written = [Path(name) for name in reports]
    job = Job(
        Path(path),
        Request.make(to=to, **given),
        hash_output=True,
        draw=wants_pictures(written),
        **output_place(output),
        **for_job,
    )
    check_device(job.device)
    require_report_targets(written, force=job.force, sources=[job.source])
    report = run(job)
    write_reports(report, written)
    return report


@_documented(*_OPTIONS)
def verify_checkpoint(
    output: PathLike,
    against: PathLike | None = None,
    *,
    to: SizeLike | None = None,
    model: str | None = None,
    model_args: Iterable[str] = (),
    images: PathLike | None = None,
    **options: Unpack[Options],
) -> Verified:
    """Check a resized checkpoint against its source, in a model, and on images.

    `options` state what is known of the source, `to` (or `to_grid`) what is known of the output.
    """
    from resize_pos.report.verify_report import Verified
    from resize_pos.verify.against_source import verify_output

    request = Request.make(to=to, **options)
    ours = open_source(Path(output))
    source = None if against is None else open_source(Path(against))
    if images is not None and (model is None or source is None):
        raise UsageError(
            "--images compares two checkpoints in a model.",
            hint="pass --model timm:NAME and --against SOURCE, too.",
        )
    held = None if source is None else verify_output(ours, source, request)
    if model is None:
        return Verified(ours.path, held)
    from resize_pos.verify.images import image_files, probe
    from resize_pos.verify.output_plan import image_size, of_output
    from resize_pos.verify.timm import ModelSpec, forward_once, load_strictly

    files = () if images is None else image_files(Path(images))
    spec = ModelSpec.parse(model, tuple(model_args))
    loaded = load_strictly(ours, spec, image_size(ours, of_output(request)))
    ran = forward_once(loaded, spec.name)
    if source is None or not files:
        return Verified(ours.path, held, ran)
    original = load_strictly(source, spec, image_size(source, request))
    return Verified(ours.path, held, ran, probe(original, loaded, files))


@_documented(*_OPTIONS)
def compare_checkpoints(
    *paths: PathLike, to: SizeLike | None = None, **options: Unpack[Options]
) -> Comparison:
    """Put versions of the same tables side by side: files, or one source by every convention."""
    from resize_pos.verify.compare import compare_conventions, compare_files

    request = Request.make(to=to, **options)
    containers = [open_source(Path(path)) for path in paths]
    if len(containers) == 1 and (request.to_size is not None or request.to_grid is not None):
        return compare_conventions(containers[0], request)
    return compare_files(containers, request)


@_documented(*_OPTIONS)
def resize_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    to: SizeLike | None = None,
    *,
    device: str = "cpu",
    **options: Unpack[Options],
) -> dict[str, torch.Tensor]:
    """Transfer tensors in memory; every tensor that is not resized is passed through as it is."""
    from resize_pos.planning.value_checks import require_finite, require_plausible
    from resize_pos.transforms.execute import transform

    request = Request.make(to=to, **options)
    infos = {name: _info(name, tensor) for name, tensor in state_dict.items()}
    known = {name: info for name, info in infos.items() if info is not None}

    def read(name: str) -> NDArray[Any]:
        return _to_numpy(state_dict[name], known[name].dtype)

    # On the meta device there are shapes and no values: then names and shapes have to do.
    shapes_only = any(getattr(tensor, "is_meta", False) for tensor in state_dict.values())
    around = Surroundings(known, request, read=None if shapes_only else read)
    plan = make_plan(locate_tables(around), request)
    result = dict(state_dict)
    for step in plan.changes:
        name = step.table.name
        array = read(name)
        require_finite(name, array, "the state dict")
        require_plausible(step.table, array)
        result[name] = _to_torch(transform(step, array, device), like=state_dict[name])
    return result


def resize_table(
    array: NDArray[Any],
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
) -> NDArray[Any]:
    """Resize one table given as an array, in any axis pattern; its dtype is kept."""
    from resize_pos.transforms.absolute import resize_absolute

    layout = Layout.parse(axes)
    source, target = Grid.parse(from_grid, "from_grid"), Grid.parse(to_grid, "to_grid")
    reason = layout.mismatch(array.shape)
    if reason is None and layout.rows(array.shape) != prefix + source.cells + suffix:
        rows = layout.rows(array.shape)
        reason = f"{rows} rows where {prefix} + {source} + {suffix} were stated"
    if reason is not None:
        raise TableError(f"an array of shape {list(array.shape)} has {reason}.")
    resampling = choose_resampling(method, antialias, like)
    return resize_absolute(
        *(array, layout, prefix, source, suffix, target, resampling, device),
        restore_norms=restore_norms,
    )


def param_groups(
    model: torch.nn.Module, report: Report, lr: float, position_lr_scale: float = 1.0
) -> list[dict[str, Any]]:
    """Split a model's parameters for an optimizer: the resized tables get a rate of their own."""
    resized = set(report.fine_tune.parameters)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    missing = resized - {name for name, _ in named}
    if missing:
        raise TableError(
            f"the model has no trainable parameter called {sorted(missing)[0]}.",
            hint="pass the model whose checkpoint was resized, with its parameters unfrozen.",
        )
    positions: Iterable[torch.nn.Parameter] = [p for name, p in named if name in resized]
    others: Iterable[torch.nn.Parameter] = [p for name, p in named if name not in resized]
    return [
        {"params": others, "lr": lr},
        {"params": positions, "lr": lr * position_lr_scale, "weight_decay": 0.0},
    ]


_TORCH_DTYPES = {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
} | {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.numpy and dtype.bits > 8}


def _info(name: str, tensor: object) -> TensorInfo | None:
    """Describe a tensor; what is not one (a step counter, a config) is none of our business."""
    dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    if dtype not in _TORCH_DTYPES:
        dtype = ""
    shape = getattr(tensor, "shape", None)
    return None if shape is None else TensorInfo(name, tuple(shape), _TORCH_DTYPES.get(dtype, "U8"))


def _to_numpy(tensor: torch.Tensor, dtype: str) -> NDArray[Any]:
    import torch

    from resize_pos.core.tensors import numpy_dtype

    raw = tensor.detach().cpu().contiguous().reshape(-1)  # a single number has no axis to view
    return raw.view(torch.uint8).numpy().view(numpy_dtype(dtype)).reshape(tuple(tensor.shape))


def _to_torch(array: NDArray[Any], like: torch.Tensor) -> torch.Tensor:
    import torch

    raw = torch.from_numpy(array.reshape(-1).view("u1")).view(like.dtype)
    return raw.reshape(array.shape).to(like.device).requires_grad_(like.requires_grad)
