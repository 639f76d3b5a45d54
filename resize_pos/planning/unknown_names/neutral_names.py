"""Tensors whose names say nothing, and that can hardly be a layer of the model: `foo.weight`.

A lookup table has no bias, and its number of rows is no width of the model, because no layer reads
or puts out that many features. What blocks share is a layer. Reads names and shapes only.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import SAME_DIGIT
from resize_pos.planning.unknown_names.candidates import (
    Sound,
    is_matrix_name,
    layouts_of,
    pixel_kernels,
    sound_of,
    words_of,
)
from resize_pos.planning.unknown_names.commands import FEWEST_WORDS, is_near_square

# From 4×4 cells, as smaller counts are classes or levels, to some more than 128×128: larger counts
# are vocabularies.
_ROWS = range(16, 20_000)
_MOST_BYTES = 2**26  # values are read; most larger tables are vocabularies
_FEWEST_USES = 2  # norms and biases as long as a width of the model
_DIGITS = lazy_regex(r"\d+")
_EMBEDDING = lazy_regex(r"emb\w*\.weight$")  # codes and words: their number is no width
_ENDINGS = frozenset({"weight", "embedding", "kernel"})

# Layers that may have no bias.
_LAYER = lazy_regex(
    r"proj(?:ection|ector)?s?|lin(?:ear)?|fc|dense|heads?|classifier|logits?|(?:out|in)puts?|out"
    r"|q?k?v|qk|qvk|w[qkvo]|to|gate|up|down|mlp|ffn?|feedforward|conv(?:[12]d)?|merger?|reduction"
    r"|(?:down|up)sample|lora|adapter|router|bottleneck|norm|pool(?:er)?|pred(?:ictor)?|final"
    r"|scores?|mix(?:er)?|stem|attn|attention|mha"
)
# Tables that are looked up by something else than a place: words, classes, codes, queries …
_COUNTED = lazy_regex(
    r"words?|tok(?:en)?s?|wte|vocab(?:ulary)?|shared|lm|codebooks?|quant(?:i[sz]er?)?|vq|codes?|labels?"
    r"|class(?:es)?|cls|y|categor(?:y|ies)|speaker|lang(?:uage)?|segment|types?|quer(?:y|ies)"
    r"|prompts?|ctx|context|time|(?:time)?steps?|temporal|frames?|experts?|memory|bank|queue"
    r"|proto(?:type)?s?|anchors?|(?:key|ref)?points?|levels?|slots?|latents?|registers?|mask"
    r"|cent(?:er|roid)s?|clusters?|priors?|basis|bins|noise|te?xt|chars?|author|users?|items?"
    r"|entity|relation|tasks?|domain|modality|cam(?:era)?|views?|buckets?|rope|rotary|freqs?|inv"
    r"|mean|std|scale|dist"
)

_OF_IMAGES = lazy_regex(r"ima?ge?s?|pixels?|vis(?:ion|ual)?|spatial")


def neutral_names(
    tensors: Mapping[str, TensorInfo], widths: Mapping[int, int]
) -> Mapping[str, bool]:
    """Return the tensors that may be tables although their names do not say so.

    True: by its shape it can hardly be a layer. False: it may be one, and only its values can tell.
    """
    bare = {
        name: info
        for name, info in tensors.items()
        if len(info.shape) > 1 and _may_be_looked_up(info, tensors)
    }
    if not bare:
        return {}
    features = {
        length
        for name, info in tensors.items()
        if DTYPES[info.dtype].floating
        for length in _features(info, looked_up=name in bare)
    }
    # A gated layer puts out twice what the next one reads.
    features |= {2 * info.shape[1] for n, info in bare.items() if is_matrix_name(n)}
    alike = Counter((_DIGITS.sub("0", name), info.shape) for name, info in bare.items())
    repeated = {n for n, info in bare.items() if alike[_DIGITS.sub("0", n), info.shape] > 1}
    kernels = pixel_kernels(tensors.values())
    beside = {_module(name) for name in kernels}
    used = {width: count for width, count in widths.items() if count >= _FEWEST_USES}
    found = {}
    for name, info in bare.items():
        layouts = layouts_of(info.shape, used)
        counts = [n for n in (each.rows(info.shape) for each in layouts) if n in _ROWS]
        few = [count for count in counts if count <= FEWEST_WORDS or is_near_square(count)]
        alone = info.shape[0] == 1 or any(count not in features for count in few)
        alone = alone or (_module(name) in beside and any(map(_is_square, counts)))
        if counts and (alone or name not in repeated):
            found[name] = alone
    return found


def _module(name: str) -> str:
    """Return the module of a table: of `embeddings.foo.weight`, `embeddings`."""
    return name.removesuffix(".weight").rpartition(".")[0]


def _is_square(count: int) -> bool:
    return math.isqrt(count) ** 2 == count


def _features(info: TensorInfo, *, looked_up: bool) -> tuple[int, ...]:
    """Return the lengths that are features; of what may be looked up, what a layer would read."""
    if not (looked_up or _EMBEDDING.search(info.name)):
        return info.shape
    return info.shape[-1:] if is_matrix_name(info.name) else ()


def _may_be_looked_up(info: TensorInfo, tensors: Mapping[str, TensorInfo]) -> bool:
    name = info.name
    module, _, last = name.rpartition(".")
    if last == "weight" and f"{module}.bias" in tensors:  # a layer, as most tensors are
        return False
    large = info.nbytes > _MOST_BYTES and not _is_square(math.prod(info.shape[:-1]))
    if not DTYPES[info.dtype].floating or large:
        return False
    if sound_of(name) is not Sound.NOTHING:
        return False
    if is_matrix_name(name) and last != "weight":
        return False
    return not counts_something_else(name)


def counts_something_else(name: str) -> bool:
    """Whether a name says that a tensor is a layer, or is looked up by something else."""
    return _counts_something_else(name.translate(SAME_DIGIT))


def sounds_like_layer(module: str) -> bool:
    """Whether the last part of a module's name is that of a layer that may have no bias."""
    return any(_LAYER.fullmatch(word) for word in words_of(re.split(r"[./]", module)[-1]))


@lru_cache(maxsize=4096)
def _counts_something_else(name: str) -> bool:
    """Judge a name in which every digit was replaced by 0: names of blocks differ in numbers."""
    parts = re.split(r"[./]", name)
    if parts[-1] in _ENDINGS and len(parts) > 1:
        del parts[-1]
    inner = words_of(parts[-1])
    outer = words_of(parts[-2]) if len(parts) > 1 else []
    if any(_OF_IMAGES.fullmatch(word) for word in outer):  # latent_image_embedding
        outer = []
    return any(_LAYER.fullmatch(word) for word in inner) or any(
        _COUNTED.fullmatch(word) for word in (*inner, *outer)
    )
