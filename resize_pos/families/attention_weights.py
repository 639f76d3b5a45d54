"""The names of self-attention weights in known layouts: which tensors hold the queries.

Used by the measure of attention (`quality/measures/attention.py`) and by `--attention-scale`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """How one layout names the weights of block `{}`, relative to a tower."""

    norm: str  # the LayerNorm before the attention
    module: str  # what the names of all its tensors begin with
    fused: str | None = None  # q, k and v one after another
    query: str | None = None
    key: str | None = None
    others: tuple[str, ...] = ()  # further tensors of plain attention

    def of_block(self, number: int, base: str) -> AttentionLayout:
        """Return the names for one block of the tower that begins with `base`."""
        return AttentionLayout(
            base + self.norm.format(number),
            base + self.module.format(number),
            self.fused,
            self.query,
            self.key,
            self.others,
        )

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the weights that make queries and keys."""
        parts = (self.fused, self.query, self.key)
        return tuple(self.module + part for part in parts if part is not None)

    @property
    def queries(self) -> tuple[str, ...]:
        """Possible names of tensors that hold query rows: first in a fused one, else all rows."""
        weight = self.fused or self.query or ""
        names = (weight, weight.replace("weight", "bias"), "q_bias")
        return tuple(self.module + name for name in names)


def _biased(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{part}" for name in names for part in ("weight", "bias"))


_TIMM = ("qkv.bias", "q_bias", "k_bias", "v_bias", *_biased("proj"))
_TORCH = ("in_proj_bias", *_biased("out_proj"))
_APART = ("q_proj.bias", "k_proj.bias", *_biased("v_proj", "proj", "o_proj", "out_proj"))
_HF = (
    "attention.query.bias",
    "attention.key.bias",
    *_biased("attention.value", "output.dense"),
)
_QUERY, _KEY = "attention.query.weight", "attention.key.weight"
_Q, _K = "q_proj.weight", "k_proj.weight"

LAYOUTS: tuple[AttentionLayout, ...] = (
    AttentionLayout("blocks.{}.norm1.weight", "blocks.{}.attn.", "qkv.weight", others=_TIMM),
    AttentionLayout(
        "blocks.{}.norm1.weight", "blocks.{}.attn.", query=_Q, key=_K, others=(*_TIMM, *_APART)
    ),
    AttentionLayout(
        "transformer.resblocks.{}.ln_1.weight",
        "transformer.resblocks.{}.attn.",
        "in_proj_weight",
        others=_TORCH,
    ),
    AttentionLayout(
        "encoder.layer.{}.layernorm_before.weight",
        "encoder.layer.{}.attention.",
        query=_QUERY,
        key=_KEY,
        others=_HF,
    ),
    AttentionLayout(
        "encoder.layer.{}.norm1.weight",
        "encoder.layer.{}.attention.",
        query=_QUERY,
        key=_KEY,
        others=_HF,
    ),
    AttentionLayout(
        "layers.{}.layernorm_before.weight",
        "layers.{}.attention.",
        query=_Q,
        key=_K,
        others=_APART,
    ),
    AttentionLayout(
        "encoder.layers.{}.layer_norm1.weight",
        "encoder.layers.{}.self_attn.",
        query=_Q,
        key=_K,
        others=_APART,
    ),
    AttentionLayout(
        "encoder.layers.encoder_layer_{}.ln_1.weight",
        "encoder.layers.encoder_layer_{}.self_attention.",
        "in_proj_weight",
        others=_TORCH,
    ),
)


def find_block(
    table: str, tensors: Mapping[str, TensorInfo], channels: int
) -> tuple[AttentionLayout, str] | None:
    """Find the layout and the tower of a table's first block; None if no known layout fits."""
    for base in _ancestors(table):
        for layout in LAYOUTS:
            block = layout.of_block(0, base)
            names = (block.norm, *block.projections)
            if all(name in tensors and _fits(tensors[name], channels) for name in names):
                return layout, base
    return None


def blocks(
    layout: AttentionLayout, base: str, tensors: Mapping[str, TensorInfo]
) -> Iterator[AttentionLayout]:
    """Return the names of every block that is in the file, in order."""
    number = 0
    while (block := layout.of_block(number, base)).norm in tensors:
        yield block
        number += 1


def _fits(info: TensorInfo, channels: int) -> bool:
    return info.shape[-1:] == (channels,) and len(info.shape) <= 2 and info.elements > 0


def _ancestors(name: str) -> Iterator[str]:
    """Return `a.b.`, `a.`, and the empty prefix for `a.b.pos_embed`, nearest first."""
    parts = name.split(".")[:-1]
    for count in range(len(parts), -1, -1):
        yield "".join(f"{part}." for part in parts[:count])
