"""Every parser that reads a stranger's bytes: clean seeds, how they are mutated, how they are read.

Used by the short run in the tests and by the recorded one (`python -m tests.hostile.fuzz`).
"""

from __future__ import annotations

import io
import json
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as save_safetensors

from resize_pos import inspect_checkpoint, resize_checkpoint
from resize_pos.containers.dcp.entries import read_entry
from resize_pos.containers.dcp.metadata import Metadata
from resize_pos.containers.detect import open_container
from resize_pos.containers.pickle.walk import walk
from resize_pos.containers.torch.tree import find_tensors
from resize_pos.core.errors import ResizePosError
from resize_pos.planning.provenance import KEY, recorded_geometry, recorded_request
from resize_pos.run.batch.ledger import NAME as LEDGER
from resize_pos.run.batch.ledger import Ledger
from resize_pos.run.batch.manifest import read_manifest
from tests.hostile.mutate import mutate_bytes, mutate_json, mutate_pickle
from tests.support.onnx_models import model


@dataclass(frozen=True)
class Parser:
    """One door through which a file comes in."""

    name: str
    make: Callable[[Random], bytes]  # one mutated input
    read: Callable[[bytes, Path, Random], None]  # reads it, with a folder to work in


@cache
def weights() -> dict[str, np.ndarray[Any, Any]]:
    """Make a very small model with a 3×5 grid."""
    random = np.random.default_rng(7)
    return {
        "cls_token": random.standard_normal((1, 1, 4)).astype(np.float32),
        "pos_embed": random.standard_normal((1, 16, 4)).astype(np.float32),
        "patch_embed.proj.weight": random.standard_normal((4, 3, 2, 2)).astype(np.float32),
        "blocks.0.mlp.fc1.bias": random.standard_normal(3).astype(np.float16),
    }


REQUEST: dict[str, Any] = {"to_grid": "5x4", "from_grid": "3x5", "prefix": 1}


def _tensors() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in weights().items()}


@cache
def torch_pickles() -> tuple[bytes, ...]:
    """Save the pickles of checkpoints of several protocols, an optimizer among them."""
    state = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(1, 16, 4)}}
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}]
    contents: list[Any] = [
        _tensors(),
        {"model": _tensors(), "epoch": 3, "n": np.float32(1), "s": {1, 2}},
        {"model": _tensors(), "optimizer": {"state": state, "param_groups": groups}},
    ]
    found = []
    for content in contents:
        for protocol in (2, 5):
            buffer = io.BytesIO()
            torch.save(content, buffer, pickle_protocol=protocol)
            found.append(buffer.getvalue())
    return tuple(found)


@cache
def _records(data: bytes) -> tuple[tuple[str, bytes], ...]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return tuple((info.filename, archive.read(info)) for info in archive.infolist())


def zipped(records: tuple[tuple[str, bytes], ...], replaced: Mapping[str, bytes]) -> bytes:
    """Make an archive in which the records with these last names have other contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in records:
            archive.writestr(name, replaced.get(name.rsplit("/", 1)[-1], data))
    return buffer.getvalue()


def _part(records: tuple[tuple[str, bytes], ...], name: str) -> bytes:
    return next(data for found, data in records if found.rsplit("/", 1)[-1] == name)


def _mutated_zip(random: Random, seeds: tuple[bytes, ...]) -> bytes:
    seed = random.choice(seeds)
    if random.random() < 0.5:
        return mutate_bytes(random, seed, random.choice(seeds))
    records = _records(seed)
    return zipped(records, {"data.pkl": mutate_pickle(random, _part(records, "data.pkl"))})


@cache
def legacy_seeds() -> tuple[bytes, ...]:
    """Save checkpoints in the stream format from before torch 1.6."""
    found = []
    for protocol in (2, 4):
        buffer = io.BytesIO()
        torch.save(
            {"model": _tensors(), "epoch": 1},
            buffer,
            pickle_protocol=protocol,
            _use_new_zipfile_serialization=False,
        )
        found.append(buffer.getvalue())
    return tuple(found)


@cache
def _legacy_pickles(seed: bytes) -> tuple[tuple[int, int], ...]:
    """Find where its five pickles begin and end: magic number, protocol, system, content, keys."""
    ends = [0]
    for _ in range(5):
        ends.append(ends[-1] + walk(seed[ends[-1] :]).end)
    return tuple(pairwise(ends))


def _mutated_legacy(random: Random) -> bytes:
    seed = random.choice(legacy_seeds())
    if random.random() < 0.4:
        return mutate_bytes(random, seed, random.choice(legacy_seeds()))
    begin, end = random.choice(_legacy_pickles(seed))
    return seed[:begin] + mutate_pickle(random, seed[begin:end]) + seed[end:]


@cache
def script_seed() -> bytes:
    """Save a TorchScript archive."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pos_embed = torch.nn.Parameter(torch.zeros(1, 16, 4))
            self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.pos_embed

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Model()), buffer)
    return buffer.getvalue()


@cache
def npz_seeds() -> tuple[bytes, ...]:
    """Save numpy archives, plain, compressed, and with objects."""
    found = []
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, **weights(), texts=np.array(["a", "b"]))  # type: ignore[arg-type]
        found.append(buffer.getvalue())
    buffer = io.BytesIO()
    np.savez(buffer, **weights(), objects=np.array([{1: 2}], dtype=object))  # type: ignore[arg-type]
    found.append(buffer.getvalue())
    return tuple(found)


@cache
def onnx_seed() -> bytes:
    """Make a small model, its weights included."""
    return bytes(model().SerializeToString())


def _mutated_npz(random: Random) -> bytes:
    seed = random.choice(npz_seeds())
    if random.random() < 0.5:
        return mutate_bytes(random, seed, random.choice(npz_seeds()))
    records = _records(seed)
    name, data = random.choice(records)
    head = data[:128]
    if random.random() < 0.5:
        text = head[10:].decode("latin-1")
        odd = random.choice(
            ("9" * 5000, "-1", "1," * 70, "(" * 500, "1e5", "True", "'<f4'", "1L", "0x10", "[1]")
        )
        for old in ("1, 16, 4", "False", "'<f4'", "3", "descr", "shape"):
            if old in text and random.random() < 0.5:
                text = text.replace(old, odd, 1)
        body = text.encode("latin-1")
        head = head[:8] + (len(body) & 0xFFFF).to_bytes(2, "little") + body
    else:
        head = mutate_bytes(random, head)
    return zipped(records, {name.rsplit("/", 1)[-1]: head + data[128:]})


@cache
def _safetensors() -> bytes:
    return bytes(save_safetensors(dict(weights()), metadata={"format": "pt", KEY: _record()}))


def _mutated_safetensors(random: Random) -> bytes:
    seed = _safetensors()
    if random.random() < 0.4:
        return mutate_bytes(random, seed)
    length = int.from_bytes(seed[:8], "little")
    header = mutate_json(random, seed[8 : 8 + length].decode())
    return len(header).to_bytes(8, "little") + header + seed[8 + length :]


INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def _mutated_index(random: Random) -> bytes:
    homes = {name: SHARDS[i % 2] for i, name in enumerate(weights())}
    text = json.dumps({"metadata": {"total_size": 999}, "weight_map": homes})
    if random.random() < 0.3:
        odd = random.choice((INDEX, "config.json", "../x", "", "loop", "folder", "a" * 300, "pipe"))
        text = text.replace(SHARDS[random.randrange(2)], odd, random.choice((1, -1)))
    return mutate_json(random, text) if random.random() < 0.8 else text.encode()


CONFIG = {
    "model_type": "vit",
    "image_size": [6, 10],
    "patch_size": 2,
    "hidden_size": 4,
    "vision_config": {"model_type": "clip_vision_model", "image_size": 6, "patch_size": 2},
    "text_config": {"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0},
    "pretrained_cfg": {"input_size": [3, 6, 10], "crop_pct": 0.9},
    "pad_token_id": 1,
    "max_position_embeddings": 512,
}
PROCESSOR = {
    "size": {"shortest_edge": 6},
    "crop_size": {"height": 6, "width": 10},
    "do_center_crop": True,
    "image_grid_pinpoints": [[6, 10], [12, 10]],
    "pad_size": {"height": 6, "width": 10},
    "mask_size": {"longest_edge": 2},
}


def _mutated_configs(random: Random) -> bytes:
    first = mutate_json(random, json.dumps(CONFIG))
    second = mutate_json(random, json.dumps(PROCESSOR))
    return first + b"\0SPLIT\0" + second


@cache
def dcp_files() -> dict[str, bytes]:
    """Save a distributed checkpoint; the content of its files."""
    from torch.distributed.checkpoint.state_dict_saver import save

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save({"model": _tensors(), "step": 1}, checkpoint_id=folder, no_dist=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def metadata_seed() -> bytes:
    """Save the metadata of a distributed checkpoint."""
    return dcp_files()[".metadata"]


@cache
def _metadata_seeds() -> tuple[bytes, ...]:
    content = pickle.loads(metadata_seed())  # torch's own file, made just now
    return metadata_seed(), pickle.dumps(content, 2), pickle.dumps(content, 5)


@cache
def entry_seed() -> bytes:
    """Save one tensor as an entry of a distributed checkpoint."""
    buffer = io.BytesIO()
    torch.save(torch.from_numpy(weights()["pos_embed"]), buffer)
    return buffer.getvalue()


MANIFESTS = {
    ".toml": '[[job]]\nsource = "a.pth"\nto = 384\nfrom = "224x96"\nprefix = 1\n',
    ".csv": "source,to,from,prefix\na.pth,384,224x96,1\nb.pth,96,48,0\n",
    ".jsonl": '{"source": "a.pth", "to": 384, "prefix": 1, "to_grid": [3, 4]}\n',
}


def _mutated_manifest(random: Random) -> bytes:
    suffix = random.choice(list(MANIFESTS))
    text = MANIFESTS[suffix]
    if suffix == ".jsonl" and random.random() < 0.6:
        return suffix.encode() + b"\0" + mutate_json(random, text)
    if random.random() < 0.5:
        odd = random.choice(
            ("9" * 5000, "-1", "[1, [2]]", "{}", "true", '"' * 3, "[" * 2000, "nan")
        )
        text = text.replace(random.choice(("384", "224x96", "1", "a.pth")), odd)
    return suffix.encode() + b"\0" + mutate_bytes(random, text.encode())


_LEDGER = json.dumps(
    {"target": "a.pth", "order": {"source": "x", "request": {"to": 3}}, "done": True}
)


def _record() -> str:
    table = {"from": [3, 5], "to": [3, 5], "prefix": 1, "suffix": 0}
    document = {"version": "0.1.0", "tables": {"pos_embed": table}, "request": {"to": "384"}}
    return json.dumps(document)


def look(path: Path, folder: Path, random: Random) -> None:
    """Open a checkpoint and read from it; now and then inspect or convert it."""
    container = open_container(path)
    for name in list(container.tensors)[:3]:
        if container.tensors[name].nbytes <= 1 << 20:
            container.read(name)
    if random.random() < 0.04:
        inspect_checkpoint(path)
    if random.random() < 0.04:
        suffix = random.choice((".safetensors", path.suffix)) if path.is_file() else ""
        target = folder / f"out{suffix}"
        resize_checkpoint(path, **REQUEST, output=target, force=True, drop_extras=True)


def _file(suffix: str) -> Callable[[bytes, Path, Random], None]:
    def read(data: bytes, folder: Path, random: Random) -> None:
        path = folder / f"in{suffix}"
        path.write_bytes(data)
        look(path, folder, random)

    return read


def _read_index(data: bytes, folder: Path, random: Random) -> None:
    inside = folder / "sharded"
    if not inside.exists():
        inside.mkdir()
        names = list(weights())
        for i, shard in enumerate(SHARDS):
            part = {name: weights()[name] for name in names[i::2]}
            (inside / shard).write_bytes(save_safetensors(part))
        (inside / "loop").symlink_to("loop")
        (inside / "folder").mkdir()
        (inside / "config.json").write_text("{}")
    (inside / INDEX).write_bytes(data)
    look(inside / INDEX, folder, random)


def _read_configs(data: bytes, folder: Path, random: Random) -> None:
    inside = folder / "model"
    if not inside.exists():
        inside.mkdir()
        (inside / "model.safetensors").write_bytes(_safetensors())
    first, _, second = data.partition(b"\0SPLIT\0")
    (inside / "config.json").write_bytes(first)
    (inside / "preprocessor_config.json").write_bytes(second)
    if random.random() < 0.5:
        inspect_checkpoint(inside)
    else:
        resize_checkpoint(
            inside, to="10x8", from_="6x10", output=folder / "out", force=True, dry_run=True
        )


def _read_pickle(data: bytes, folder: Path, random: Random) -> None:
    del folder, random
    find_tensors(walk(data))


def _read_metadata(data: bytes, folder: Path, random: Random) -> None:
    del folder, random
    metadata = Metadata.of(data)
    shapes = {name: (1, 21, 4) for name in metadata.tensors if name.endswith("pos_embed")}
    moved = {piece.number: ("a.distcp", 0, 1) for piece in metadata.pieces}
    Metadata.of(metadata.changed(shapes, moved))


def _read_entry(data: bytes, folder: Path, random: Random) -> None:
    del folder, random
    read_entry(data, "F32", (1, 16, 4))


def _read_manifest(data: bytes, folder: Path, random: Random) -> None:
    del random
    suffix, _, content = data.partition(b"\0")
    path = folder / f"jobs{suffix.decode()}"
    path.write_bytes(content)
    read_manifest(path)


def _read_ledger(data: bytes, folder: Path, random: Random) -> None:
    del random
    (folder / LEDGER).write_bytes(data)
    for entry in Ledger(folder).entries.values():
        str(entry)


def _read_provenance(data: bytes, folder: Path, random: Random) -> None:
    del folder, random
    metadata = {KEY: data.decode("utf-8", "replace")}
    recorded_geometry(metadata)
    recorded_request(metadata)


@cache
def _pickles() -> tuple[bytes, ...]:
    return tuple(_part(_records(seed), "data.pkl") for seed in torch_pickles())


PARSERS: tuple[Parser, ...] = (
    Parser("safetensors", _mutated_safetensors, _file(".safetensors")),
    Parser("torch zip", lambda r: _mutated_zip(r, torch_pickles()), _file(".pth")),
    Parser("torch legacy", _mutated_legacy, _file(".pth")),
    Parser("torchscript", lambda r: _mutated_zip(r, (script_seed(),)), _file(".pt")),
    Parser("pickle", lambda r: mutate_pickle(r, r.choice(_pickles())), _read_pickle),
    Parser("npz", _mutated_npz, _file(".npz")),
    Parser("onnx", lambda r: mutate_bytes(r, onnx_seed(), onnx_seed()), _file(".onnx")),
    Parser("shard index", _mutated_index, _read_index),
    Parser("configs", _mutated_configs, _read_configs),
    Parser("dcp metadata", lambda r: mutate_pickle(r, r.choice(_metadata_seeds())), _read_metadata),
    Parser("dcp entry", lambda r: _mutated_zip(r, (entry_seed(),)), _read_entry),
    Parser("manifest", _mutated_manifest, _read_manifest),
    Parser("ledger", lambda r: mutate_json(r, _LEDGER) + b"\n", _read_ledger),
    Parser("provenance", lambda r: mutate_json(r, _record()), _read_provenance),
)


def attempt(parser: Parser, data: bytes, folder: Path, random: Random) -> BaseException | None:
    """Read one input; return what it raised that is not ours."""
    try:
        parser.read(data, folder, random)
    except ResizePosError:
        return None
    except Exception as error:
        return error
    return None
