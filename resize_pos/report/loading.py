"""Code that loads the output of a run at its new size, ready to paste.

`MODEL` stands for a name that the checkpoint does not state. Where it is not known which code loads
a file, there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from resize_pos.configs.inside import INSIDE
from resize_pos.containers.detect import named_format
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.operations import ResampleKernel
from resize_pos.core.printable import printable
from resize_pos.report.report import Report

UNKNOWN_NAME = "MODEL"
_USUAL, _WIDEST = 80, 120  # columns; a narrow terminal shows a line as two, but copies it as one
_SAFETENSORS, _TORCH = "safetensors", "torch"
# The entries in which timm looks for weights: timm/models/_helpers.py, load_state_dict.
_TIMM_ENTRIES = ("", "state_dict_ema", "model_ema", "state_dict", "model")


@dataclass(frozen=True, slots=True)
class Loading:
    """Python code: imports, and the statements that make `model`."""

    imports: tuple[str, ...]
    statements: tuple[str, ...]

    def __add__(self, other: Loading) -> Loading:
        return Loading((*self.imports, *other.imports), (*self.statements, *other.statements))

    def __str__(self) -> str:
        plain = [line.removeprefix("import ") for line in self.imports if line.startswith("import")]
        first = (f"import {', '.join(plain)}",) if plain else ()
        others = (line for line in self.imports if line.startswith("from"))
        return "\n".join((*first, *others, *self.statements))


def loading_code(report: Report) -> Loading | None:
    """Return code that builds the model at the new size and loads the output; None: not known."""
    make = _CODE.get(_library(report) or "")
    if make is None or report.output is None or isinstance(report.output, RemotePath):
        return None
    return make(report, report.output)


def call(function: str, arguments: Sequence[str]) -> str:
    """Write a call: on one line if it is not too long, else with its arguments below it."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= _WIDEST:
        return line
    lines, begin = [f"{function}("], "    "
    for argument in arguments:
        if len(lines) > 1 and len(lines[-1]) + len(argument) + 2 <= _USUAL:
            lines[-1] += f" {argument},"
        else:
            lines.append(f"{begin}{argument},")
    return "\n".join((*lines, ")"))


def listed(names: Sequence[str]) -> tuple[str, ...]:
    """Write names as the parts of a list, for `call` to join; a long list takes several lines."""
    *first, last = map(text_code, names)
    whole = [*first, f"{last}]"]
    return (f"[{whole[0]}", *whole[1:])


def text_code(text: Path | str) -> str:
    """Write text as a Python string on one line; a name may hold quotes and line breaks.

    What cannot be printed is written as an escape, so the code has the same meaning on a terminal.
    """
    return printable(json.dumps(str(text), ensure_ascii=False))


def _library(report: Report) -> str | None:
    """Return the library whose names the tables have, and whether it reads a folder."""
    if report.holds_graph:
        return "onnx"
    edited = {edit.file for edit in report.plan.config_edits}
    if report.config_library is not None and edited:
        return f"{report.config_library} folder"
    named = {advice.library for advice in report.config_advice} - {INSIDE}
    return next(iter(named)) if len(named) == 1 else None


def _format(output: Path) -> str | None:
    """Return the file format that the name of the output states."""
    found = named_format(output)
    return None if found is None else found.name


def _size(size: Size | None) -> str:
    if size is None:
        return "SIZE"
    return str(size.height) if size.height == size.width else f"({size.height}, {size.width})"


def _timm(report: Report, output: Path) -> Loading | None:
    if _format(output) not in (_SAFETENSORS, _TORCH) or report.wrapper not in _TIMM_ENTRIES:
        return None
    known = report.known_model
    name, own = (UNKNOWN_NAME, {}) if known is None else (known.name, known.arguments)
    arguments = [
        text_code(name),
        f"img_size={_size(report.plan.to_size)}",
        *(f"{key}={value}" for key, value in {**own, **_other_sizes(report)}.items()),
        f"checkpoint_path={text_code(output)}",
    ]
    return Loading(("import timm",), (call("model = timm.create_model", arguments),))


def _other_sizes(report: Report) -> dict[str, object]:
    """Return what else timm's constructor must be told: another window, another patch size."""
    stated = [each for each in report.config_advice if (each.library, each.file) == _TIMM_TAKES]
    sizes: dict[str, object] = {
        each.key: tuple(each.after) if isinstance(each.after, list) else each.after
        for each in stated
        if each.key != "img_size"
    }
    patch = _new_patch(report)  # a config beside the file may state it, too
    if patch is not None and "patch_size" not in sizes:
        sizes["patch_size"] = patch.height if patch.is_square else (patch.height, patch.width)
    return sizes


def _new_patch(report: Report) -> Grid | None:
    """Return the sides of the new patch in pixels, if `--to-patch` changes it."""
    resized = (s for s in report.plan.steps if isinstance(s.operation, ResampleKernel))
    return next((step.target for step in resized), None)


_TIMM_TAKES = ("timm", "create_model")


def _timm_folder(report: Report, output: Path) -> Loading:
    del report
    name = text_code(f"local-dir:{output}")
    made = call("model = timm.create_model", [name, "pretrained=True"])
    return Loading(("import timm",), (made,))


def _transformers(report: Report, output: Path) -> Loading | None:
    weights = _state(report, output)
    if weights is None:
        return None
    stated = _config_values(report)
    told = any(value.startswith("patch_size=") for value in stated)
    if _new_patch(report) is not None and not told:
        return None  # a section of the config states the patch, and no argument reaches it
    sizes = stated or [f"image_size={_size(report.plan.to_size)}"]
    config = call("config = AutoConfig.from_pretrained", [text_code(UNKNOWN_NAME), *sizes])
    return Loading(
        (*weights.imports, "from transformers import AutoConfig, AutoModel"),
        (
            *weights.statements,
            config,
            "model = AutoModel.from_config(config)",
            "model.load_state_dict(state)",
        ),
    )


def _config_values(report: Report) -> list[str]:
    """State what changes in the model's config: a text model has a length, not an image size."""
    return [
        f"{each.key}={tuple(each.after) if isinstance(each.after, list) else each.after!r}"
        for each in report.config_advice
        if (each.library, each.file) == _CONFIG and each.key.isidentifier()
    ]


_CONFIG = ("transformers", "config.json")


def _transformers_folder(report: Report, output: Path) -> Loading:
    # A model with a head is loaded with it: AutoModel leaves it out, or does not know the model.
    own = report.architecture
    name = "AutoModel" if own is None or own.endswith("Model") else own
    made = call(f"model = {name}.from_pretrained", [text_code(output)])
    return Loading((f"from transformers import {name}",), (made,))


def _open_clip(report: Report, output: Path) -> Loading | None:
    if _format(output) not in (_SAFETENSORS, _TORCH) or _new_patch(report) is not None:
        return None  # no argument of create_model states another patch
    arguments = [
        text_code(UNKNOWN_NAME),
        f"pretrained={text_code(output)}",
        f"force_image_size={_size(report.plan.to_size)}",
    ]
    return Loading(("import open_clip",), (call("model = open_clip.create_model", arguments),))


def _open_clip_folder(report: Report, output: Path) -> Loading:
    del report
    made = call("model = open_clip.create_model", [text_code(f"local-dir:{output}")])
    return Loading(("import open_clip",), (made,))


def _torchvision(report: Report, output: Path) -> Loading | None:
    weights = _state(report, output)
    if weights is None or _new_patch(report) is not None:
        return None  # get_model states the patch of each model itself
    arguments = [text_code(UNKNOWN_NAME), f"image_size={_size(report.plan.to_size)}"]
    return Loading(
        (*weights.imports, "import torchvision"),
        (
            *weights.statements,
            call("model = torchvision.models.get_model", arguments),
            "model.load_state_dict(state)",
        ),
    )


def _onnx(report: Report, output: Path) -> Loading:
    # With external data the output is a folder, in which the graph keeps the name of its source.
    graph = output if _format(output) == "onnx" else output / report.source.name
    made = call("session = onnxruntime.InferenceSession", [text_code(graph)])
    return Loading(("import onnxruntime",), (made,))


def _state(report: Report, output: Path) -> Loading | None:
    """Return code that reads the tensors of a file into `state`."""
    if _format(output) == _SAFETENSORS:
        read = call("state = load_file", [text_code(output)])
        return Loading(("from safetensors.torch import load_file",), (read,))
    if _format(output) == _TORCH and report.wrapper is not None:
        entry = f"[{text_code(report.wrapper)}]" if report.wrapper else ""
        read = call("state = torch.load", [text_code(output), "weights_only=True"])
        return Loading(("import torch",), (f"{read}{entry}",))
    return None


_CODE: Mapping[str, Callable[[Report, Path], Loading | None]] = {
    "timm": _timm,
    "timm folder": _timm_folder,
    "transformers": _transformers,
    "transformers folder": _transformers_folder,
    "open_clip": _open_clip,
    "open_clip folder": _open_clip_folder,
    "torchvision": _torchvision,
    "onnx": _onnx,
}
