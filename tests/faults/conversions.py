"""The conversions that are disturbed: one for each container, a batch, and reports.

Nothing heavy is imported here: the driver forks, and must be as small as a real run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

GRIDS = ("--from-grid", "3x5", "--to-grid", "4x7")


class Conversion(NamedTuple):
    """A command that is run in a folder with `src/` and `out/`."""

    words: tuple[str, ...]
    targets: tuple[str, ...]  # below out/
    folder: bool = False  # the targets are folders
    linked: bool = False  # some files of the target are hard links to the source's
    reports: tuple[str, ...] = ()  # below out/; they hold times, so their bytes differ


def _file(name: str, *more: str, to: str | None = None) -> tuple[str, ...]:
    return (f"src/{name}", *GRIDS, "-o", f"out/{to or name}", *more)


CONVERSIONS: Mapping[str, Conversion] = {
    "safetensors": Conversion(_file("vit.safetensors"), ("vit.safetensors",)),
    "zip": Conversion(_file("vit.pth"), ("vit.pth",)),
    "legacy": Conversion(_file("vit.pt"), ("vit.pt",)),
    "npz": Conversion(_file("vit.npz"), ("vit.npz",)),
    "reformat": Conversion(
        _file("vit.pth", "--drop-extras", to="vit.safetensors"),
        ("vit.safetensors",),
    ),
    "shards": Conversion(_file("model"), ("model",), folder=True),
    "linked": Conversion(_file("model", "--link"), ("model",), folder=True, linked=True),
    "folder": Conversion(
        ("src/model", "--to", "64x112", "-o", "out/model"), ("model",), folder=True
    ),
    "dcp": Conversion(_file("model"), ("model",), folder=True),
    "batch": Conversion(
        ("batch", "src", *GRIDS, "-o", "out", "-j", "1"),
        ("a.safetensors", "b.safetensors", "c.pth"),
    ),
    "report": Conversion(
        _file(
            "vit.safetensors",
            *("--report", "out/report.html"),
            *("--report", "out/report.md"),
            *("--report", "out/report.json"),
        ),
        ("vit.safetensors",),
        reports=("report.html", "report.md", "report.json"),
    ),
}
