"""First-layer attention from positions alone, computed with the weights of the model's block 0.

logits = P̂·Wqᵀ·(P̂·Wkᵀ)ᵀ / √head, P̂ = γ ⊙ (P − mean over channels) / σ, with the first LayerNorm's
scale γ. Both tables use the source's σ, so that a change of the norms has an effect. Only a few
heads are read, evenly spread over all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.attention_weights import AttentionLayout, find_block
from resize_pos.quality.measures.place import lattices
from resize_pos.quality.measures.sampling import Single, Wide, products, spread

Rows = Callable[[str, int, int], NDArray[Any]]  # of a tensor: its name, the first, how many

_PLACES = 7  # per axis
_HEAD = 64  # channels per head if not known otherwise; true for nearly every ViT
_HEADS = 8  # that are looked at
_LARGEST = 1 << 23  # limit for a projection that must be read whole (unknown heads)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that are applied to positions before they are compared."""

    scale: Single  # (d,)
    query: Iterable[Single]  # each head: (channels of the head, d)
    key: Iterable[Single]


@dataclass(frozen=True, slots=True)
class _Heads:
    """Some heads of a projection, read one after the other; all of them may be large."""

    name: str
    starts: tuple[int, ...]
    head: int  # rows of each
    rows: Rows

    def __iter__(self) -> Iterator[Single]:
        for start in self.starts:
            yield self.rows(self.name, start, self.head).astype(np.float32, copy=False)


def find_keys(
    table: str, tensors: Mapping[str, TensorInfo], channels: int
) -> AttentionLayout | None:
    """Find block 0's projections for a table; return None if no known layout fits."""
    found = find_block(table, tensors, channels)
    return None if found is None else found[0].of_block(0, found[1])


def read_weights(
    keys: AttentionLayout, tensors: Mapping[str, TensorInfo], rows: Rows
) -> Weights | None:
    """Read a norm's scale and some heads of two projections; None where they are too large."""
    scale = rows(keys.norm, 0, tensors[keys.norm].shape[0]).astype(np.float32)
    if keys.fused is not None:
        (fused,) = keys.projections
        width = tensors[fused].shape[0] // 3
        places = ((fused, 0), (fused, width))
    else:
        query, key = keys.projections
        width = tensors[query].shape[0]
        places = ((query, 0), (key, 0))
    head = _head(width)
    chosen = spread(width // head, _HEADS)
    if len(chosen) * head * len(scale) > _LARGEST:
        return None
    queries, keys_of = (
        _Heads(name, tuple(first + int(n) * head for n in chosen), head, rows)
        for name, first in places
    )
    return Weights(scale, queries, keys_of)


def by_head(projection: Single) -> Sequence[Single]:
    """Cut a projection into its heads."""
    return np.split(projection, len(projection) // _head(len(projection)))


def _head(width: int) -> int:
    return _HEAD if width % _HEAD == 0 else width


def measure_attention(
    source: NDArray[Any], target: NDArray[Any], weights: Weights
) -> dict[str, float]:
    """Compare the attention between the same places of the image, before and after."""
    places = min(_PLACES, max(source.shape[1:3]), max(target.shape[1:3]))
    before, after = lattices(source, target, places)
    sigma = float(np.sqrt(np.mean((before - before.mean(axis=1, keepdims=True)) ** 2)))
    if not sigma or len(before) < 2:
        return {}
    first, second = attentions((before / sigma, after / sigma), weights)
    return {
        "attention_drift": float(0.5 * np.abs(first - second).sum(axis=-1).mean()),
        "attention_entropy_before": _entropy(first),
        "attention_entropy_after": _entropy(second),
    }


def attentions(tables: Sequence[Wide], weights: Weights) -> list[Wide]:
    """Return softmax(q·kᵀ/√head) of each table's vectors alone, (heads, places, places)."""
    scaled = [_scaled(rows, weights.scale) for rows in tables]
    # The heads are the outer loop: they are read once, and only one of them is in memory.
    queries, keys = (
        [[products(rows, head) for rows in scaled] for head in projection]
        for projection in (weights.query, weights.key)
    )
    head_size = queries[0][0].shape[1]
    return [
        _softmax([products(q[n], k[n]) for q, k in zip(queries, keys, strict=True)], head_size)
        for n in range(len(tables))
    ]


def _scaled(rows: Wide, scale: Single) -> Single:
    scaled: Single = ((rows - rows.mean(axis=1, keepdims=True)) * scale).astype(np.float32)
    return scaled


def _softmax(by_heads: Sequence[Single], head_size: int) -> Wide:
    logits = (np.stack(by_heads) / np.sqrt(head_size)).astype(np.float64)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Wide = powers / powers.sum(axis=-1, keepdims=True)
    return result


def _entropy(attention: Wide) -> float:
    terms = attention * np.log(np.maximum(attention, 1e-30))
    return float(-terms.sum(axis=-1).mean() / np.log(attention.shape[-1]))
