"""Checkpoints to write reports about: plain, non-square, damaged, hostile, and of many tables."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.builders import smooth, vit, write_safetensors

HOSTILE = "m<script>alert(1)</script>|`a`\"'&amp;\x1b[31m."
CHANNELS = 32
_LONG = "a_rather_long_name_of_a_training_framework.student_model.backbone"


def learned(height: int, width: int, seed: int = 0, prefix: int = 1) -> NDArray[np.float32]:
    """Make a table that looks learned: smooth, with a little noise, `1 (p h w) d`."""
    rng = np.random.default_rng(seed)
    grid = sum(smooth(height, width, CHANNELS, seed + part) * 0.6**part for part in range(4))
    rows = (grid + 0.05 * rng.normal(size=(height, width, CHANNELS))).reshape(-1, CHANNELS)
    whole = np.concatenate([rng.normal(size=(prefix, CHANNELS)), rows])
    return whole[None].astype(np.float32)


def tower(stem: str, height: int, width: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Make one ViT's tensors under a stem."""
    tensors = vit(height, width, channels=CHANNELS) | {"pos_embed": learned(height, width, seed)}
    return {stem + name: array for name, array in tensors.items()}


def sam(blocks: int) -> dict[str, NDArray[Any]]:
    """Make a SAM-like encoder: a 12×16 grid, and blocks whose offsets follow it; one windowed."""
    tensors: dict[str, NDArray[Any]] = {
        "pos_embed": learned(12, 16, prefix=0).reshape(1, 12, 16, CHANNELS),
        "patch_embed.proj.weight": np.ones((CHANNELS, 3, 16, 16), np.float32),
        "neck.0.weight": np.ones((4, CHANNELS, 1, 1), np.float32),
    }
    for block in range(blocks + 1):
        for axis, cells in (("h", 12), ("w", 16)):
            rows = 2 * (cells if block else 5) - 1
            name = f"blocks.{block}.attn.rel_pos_{axis}"
            tensors[name] = smooth(1, rows, 16, seed=block)[0]
    return tensors


def untrained() -> dict[str, NDArray[Any]]:
    """Make a ViT whose table is still noise."""
    noise = np.random.default_rng(5).normal(size=(1, 71, CHANNELS)) * 0.02
    return tower("", 7, 10) | {"pos_embed": noise.astype(np.float32)}


FILES: dict[str, Callable[[], dict[str, NDArray[Any]]]] = {
    "plain": lambda: tower("", 7, 10),
    "sam": lambda: sam(30),
    "five": lambda: {
        name: array
        for at in range(5)
        for name, array in tower(f"tower{at}.", 14, 20, seed=at).items()
    },
    "long": lambda: {
        name: array
        for at in range(2)
        for name, array in tower(f"{_LONG}.layers{at}.", 7, 10, seed=at).items()
    },
    "untrained": untrained,
    "hostile": lambda: tower(HOSTILE, 7, 10),
}
GRIDS: dict[str, list[str]] = {
    "plain": ["--from-grid", "7x10", "--to-grid", "9x12"],
    "sam": ["--to-grid", "16x24"],
    "five": ["--from-grid", "14x20", "--to-grid", "24x32"],
    "long": ["--from-grid", "7x10", "--to-grid", "9x12"],
    "untrained": ["--from-grid", "7x10", "--to-grid", "9x12"],
    "hostile": ["--from-grid", "7x10", "--to-grid", "9x12"],
}


def write_case(name: str, folder: Path) -> Path:
    """Write the checkpoint of a case."""
    return write_safetensors(folder / f"{name}.safetensors", FILES[name](), {"format": "pt"})


_VOID = {"meta", "img", "br", "link", "hr", "input"}


class Parsed(HTMLParser):
    """A page taken apart: elements with their attributes, texts, and whether its tags match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, words
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str]]:
        """Give the attributes of every element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]
