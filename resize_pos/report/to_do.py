"""What is left to do after a conversion: load the weights, edit configs, choose learning rates.

The code is ready to paste. `MODEL` stands for a name that the checkpoint does not state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from resize_pos.configs.advice import ConfigAdvice
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.families.family import Role
from resize_pos.report.report import Report, Status

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class ToDo:
    """One thing to do, and the code for it."""

    words: str
    code: str = ""


def tasks(report: Report) -> tuple[ToDo, ...]:
    """List what the user has to do with the output of a run."""
    if report.status is not Status.RESIZED or report.output is None:
        return ()
    return (*_configs(report), *_loading(report), *_learning_rates(report))


def _configs(report: Report) -> Iterator[ToDo]:
    lines = [str(advice) for advice in report.config_advice if not _in_the_call(advice)]
    if lines:
        yield ToDo("Change these values; the weights do not hold them:", "\n".join(lines))


def _in_the_call(advice: ConfigAdvice) -> bool:
    """Return whether the loading code passes the value."""
    return advice.file in ("create_model", "the model's constructor")


def _loading(report: Report) -> Iterator[ToDo]:
    code = loading_code(report)
    if code is not None:
        yield ToDo("Load it:", code)


def loading_code(report: Report) -> str | None:
    """Return code that builds the model at the new size and loads the output; None: not known."""
    library = _library(report)
    make = _CODE.get(library or "")
    if make is None or report.output is None:
        return None
    return make(report.output, _size_code(report.plan.to_size))


def _library(report: Report) -> str | None:
    """Return the library whose names the tables have."""
    if report.output is not None and report.holds_graph:
        return "onnx"
    if any(edit.file == "open_clip_config.json" for edit in report.plan.config_edits):
        return "open_clip folder"
    if report.plan.config_edits:
        return "transformers folder"
    named = {advice.library for advice in report.config_advice}
    return next(iter(named)) if len(named) == 1 else None


def _size_code(size: Size | None) -> str:
    if size is None:
        return "SIZE"
    return str(size.height) if size.height == size.width else f"({size.height}, {size.width})"


def _timm(output: Path, size: str) -> str:
    return (
        "import timm\n"
        f'model = timm.create_model("MODEL", img_size={size}, checkpoint_path={_path(output)})'
    )


def _transformers(output: Path, size: str) -> str:
    return (
        "from safetensors.torch import load_file\n"
        "from transformers import AutoConfig, AutoModel\n"
        f'config = AutoConfig.from_pretrained("MODEL", image_size={size})\n'
        "model = AutoModel.from_pretrained("
        f"None, config=config, state_dict=load_file({_path(output)}))"
    )


def _transformers_folder(output: Path, size: str) -> str:
    del size
    return f"from transformers import AutoModel\nmodel = AutoModel.from_pretrained({_path(output)})"


def _open_clip(output: Path, size: str) -> str:
    return (
        "import open_clip\n"
        f'model = open_clip.create_model("MODEL", pretrained={_path(output)}, '
        f"force_image_size={size})"
    )


def _open_clip_folder(output: Path, size: str) -> str:
    del size
    name = f"local-dir:{output}"
    return f"import open_clip\nmodel = open_clip.create_model({_path(name)})"


def _torchvision(output: Path, size: str) -> str:
    return (
        "import torch, torchvision\n"
        f'model = torchvision.models.get_model("MODEL", image_size={size})\n'
        f"model.load_state_dict(torch.load({_path(output)}, weights_only=True))"
    )


def _onnx(output: Path, size: str) -> str:
    del size
    return f"import onnxruntime\nsession = onnxruntime.InferenceSession({_path(output)})"


_CODE = {
    "timm": _timm,
    "transformers": _transformers,
    "transformers folder": _transformers_folder,
    "open_clip": _open_clip,
    "open_clip folder": _open_clip_folder,
    "torchvision": _torchvision,
    "onnx": _onnx,
}


def _path(path: Path | str) -> str:
    """Write a path as a Python string on one line; a name may hold quotes and line breaks."""
    return json.dumps(str(path), ensure_ascii=False)


def _learning_rates(report: Report) -> Iterator[ToDo]:
    """Give the interpolated tables a learning rate of their own."""
    names = report.fine_tune.parameters
    image = any(table.step.table.role is Role.ABSOLUTE for table in report.tables)
    if report.holds_graph or not image or not 0 < len(names) <= _MOST_NAMED:
        return
    shown = ", ".join(_path(name) for name in names)
    yield ToDo(
        "To train on, the interpolated tables may need a larger learning rate than the rest:",
        f"interpolated = {{{shown}}}\n"
        "groups = [\n"
        '    {"params": [p for n, p in model.named_parameters() if n in interpolated], '
        '"lr": 1e-4},\n'
        '    {"params": [p for n, p in model.named_parameters() if n not in interpolated], '
        '"lr": 1e-5},\n'
        "]",
    )
