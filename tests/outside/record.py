"""Build every model of `models.toml` with its own library and record what a checkpoint holds.

`python -m tests.outside.record [PACKAGE …]` writes `headers/PACKAGE.json`. It needs the packages
themselves; the tests need only the recorded headers. `[stand_ins]` names libraries that a package
imports and that its models do not need. A package that cannot be imported even so is imported
module by module. Two packages may have modules of one name, so record one at a time.
"""

from __future__ import annotations

import base64
import importlib
import importlib.metadata
import json
import sys
import tomllib
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.outside.stand_ins import use_stand_ins, without_parents

HERE = Path(__file__).parent
_DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
    torch.uint8: "U8",
}
_LARGEST_VALUES = 8_000_000  # bytes of a buffer whose values are recorded
_LARGEST_TEXT = 40_000  # characters of such values, compressed; masks of windows need few


def build(spec: Mapping[str, Any], size: tuple[int, int]) -> Any:
    """Call a class (or function) with the arguments that stand in a table."""
    arguments = {key: evaluate(value, size) for key, value in spec.items() if key != "class"}
    module, _, name = str(spec["class"]).rpartition(".")
    positional = arguments.pop("_", ())
    return getattr(importlib.import_module(module), name)(*positional, **arguments)


def evaluate(value: Any, size: tuple[int, int]) -> Any:
    """Fill sizes into an argument."""
    height, width = size
    if isinstance(value, str) and value.startswith("="):
        whole = height if height == width else size
        return eval(value[1:], {"size": whole, "h": height, "w": width})
    if isinstance(value, dict):
        if "class" in value:
            return build(value, size)
        return {key: evaluate(each, size) for key, each in value.items()}
    if isinstance(value, list):
        return tuple(evaluate(each, size) for each in value)
    return value


def state(
    spec: Mapping[str, Any], size: tuple[int, int], device: str
) -> tuple[dict[str, torch.Tensor], set[str]]:
    """Build a model and give what it would store, and which of it are parameters."""
    torch.manual_seed(0)
    with warnings.catch_warnings(), torch.device(device):
        warnings.simplefilter("ignore")
        model = build(spec, size)
    found = {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}
    return found, {name for name, _ in model.named_parameters(remove_duplicate=False)}


def both(
    spec: Mapping[str, Any], sizes: list[tuple[int, int]]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], set[str]]:
    """Build at both sizes, with values only where buffers exist, whose values are recorded."""
    try:
        states = [state(spec, size, "meta") for size in sizes]
        if any(found.keys() - parameters for found, parameters in states):
            raise NotImplementedError
    except Exception:
        states = [state(spec, size, "cpu") for size in sizes]
    (source, parameters), (target, _) = states
    return source, target, parameters


def record(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Describe one model at both of its sizes."""
    arguments = {**shared.get(entry.get("use", ""), {}), **entry.get("args", {})}
    spec = {"class": entry["class"], **arguments}
    source, target, parameters = both(spec, [_sides(entry["from"]), _sides(entry["to"])])
    changed = [n for n in source if n not in target or source[n].shape != target[n].shape]
    values = {}
    for name in source:
        tensor, other = source[name], target.get(name)
        if other is None or name in parameters or tensor.is_meta:
            continue
        number = not tensor.dtype.is_floating_point and not _equal(tensor, other)
        if name not in changed and not number:
            continue
        if max(tensor.nbytes, other.nbytes) > _LARGEST_VALUES:
            continue
        packed = [_packed(tensor), _packed(other)]
        if max(map(len, packed)) <= _LARGEST_TEXT:
            values[name] = packed
            if name not in changed:
                changed.append(name)
    module = entry["class"].split(".")[0]
    return {
        "class": entry["class"],
        "version": _version(entry["package"], module),
        "args": arguments,
        "from": entry["from"],
        "to": entry["to"],
        **{key: entry[key] for key in ("note",) if key in entry},
        "tensors": {name: _words(tensor) for name, tensor in source.items()},
        "buffers": [n for n in source if n not in parameters],
        "changed": {n: _words(target[n]) if n in target else None for n in changed},
        "added": {n: _words(target[n]) for n in target if n not in source},
        "values": values,
    }


def record_somehow(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a model; if its package fails, without the `__init__` of the packages around it."""
    try:
        return record(entry, shared)
    except Exception:
        without_parents(entry["class"].rpartition(".")[0])
        return record(entry, shared)


def _sides(size: list[int]) -> tuple[int, int]:
    """Give height and width; the length of a signal stands for both."""
    return size[0], size[-1]


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and bool(torch.equal(one, other))


def _words(tensor: torch.Tensor) -> str:
    return " ".join([_DTYPES[tensor.dtype], *map(str, tensor.shape)])


def _packed(tensor: torch.Tensor) -> str:
    raw = tensor.detach().contiguous().numpy().tobytes()
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def _version(package: str, module: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", "unknown"))


def main(packages: list[str]) -> None:
    """Record all models, or those of some packages."""
    document = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))
    by_package: dict[str, list[dict[str, Any]]] = {}
    asked = {entry["package"] for entry in document["model"]} & set(packages)
    for package in asked:
        use_stand_ins(document["stand_ins"].get(package, ()))
    for entry in document["model"]:
        if packages and entry["package"] not in packages:
            continue
        try:
            found = record_somehow(entry, document.get("shared", {}))
        except Exception as error:
            sys.stderr.write(f"FAILED {entry['class']}: {error}\n"[:300])
            continue
        by_package.setdefault(entry["package"], []).append(found)
        sys.stdout.write(f"{entry['class']}: {found['changed']}\n"[:300])
    for package, models in by_package.items():
        lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
        (HERE / "headers").mkdir(exist_ok=True)
        (HERE / "headers" / f"{package}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
