"""Which tensors may be position tables, by shape first: names only raise or lower the chance.

Names of private models never end. But a table has one axis as long as a width of the model, and its
other axes count the cells of a grid and the tokens before or after it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from resize_pos.core.axes import Layout
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import DTYPES, TensorInfo
from resize_pos.families.family import SAME_DIGIT
from resize_pos.planning.geometry.grid_solver import RowCount, rows_in_words

if TYPE_CHECKING:
    from resize_pos.planning.rules.base import Surroundings

FEWEST_ROWS = 9  # a 3×3 grid; smaller counts are tokens, heads and the like
_WIDEST_ASPECT = 16
_MOST_TOKENS = 16  # rows that one tensor of tokens may own
_FEWEST_CHANNELS = 8
_MOST_COORDINATES = 4
_FEWEST_FEATURES = 32  # of a model; shorter biases are those of classes

# How a table is laid out, by its number of axes. `d` must be as long as a width of the model.
_LAYOUTS: Mapping[int, tuple[str, ...]] = {
    2: ("(p h w s) d", "d (p h w s)"),
    3: ("1 (p h w s) d", "(p h w s) 1 d", "1 d (p h w s)", "h w d", "d h w"),
    4: ("1 h w d", "1 d h w", "1 1 (p h w s) d", "1 (p h w s) 1 d", "1 n (p h w s) d", "t h w d"),
    5: ("1 t h w d", "1 d t h w"),
}
# One row per row or column of cells, by the number of axes and what the name says.
_AXIAL: Mapping[int, tuple[str, ...]] = {
    2: ("{} d",),
    3: ("1 {} d", "{} 1 d"),
    4: ("1 h 1 d", "1 1 w d", "1 d h 1", "1 d 1 w"),
    5: ("1 1 h 1 d", "1 1 1 w d", "1 d 1 h 1", "1 d 1 1 w"),
}

_WORD = lazy_regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_POSITION = lazy_regex(
    r"(?:pos|ppe|wpe|ape|pe|posi?t?ions?|positional|abs|absolute|grid|locs?|locations?|spatial"
    r"|coords?|places?|pos(?:emb|enc|tab|embed|itionemb)\w*)"
)
_FIRM = lazy_regex(r"(?:pos|wpe|ape|pe|positions?|positional|pos(?:emb|enc|tab|ition)\w*)")
# Words of tables that count something else: queries, words, offsets, buckets, frames …
_OTHER = lazy_regex(
    r"quer(?:y|ies)|rel|relative|relpos|anchors?|bias|buckets?|prompts?|registers?|types?|time"
    r"|timesteps?|temporal|frames?|text|texts|txt|words?|vocab|char|chars|freqs?|scales?|slots?"
    r"|latents?|memory|codebook|label|labels|class|cls|dist|lang|language|caption|audio|speaker"
    r"|expert|experts|keypoint|keypoints|points?|boxes?|segment|rope|rotary|inv|sep|mean|std"
    r"|decoder_start|key|value|qkv|attn|mlp|ffn|conv|norm|ln|proj|fc|gate|mask"
)
_HINT = lazy_regex(
    r"pos|pe\b|(?:grid|loc|location|locations|spatial|coords?)_?(?:emb|enc|tab)|(?:height|width|rows?|col|cols|column|[hwxy]|vertical|horizontal|freq|time)_?emb",
    re.IGNORECASE,
)
_SEQUENCE = lazy_regex(
    r"te?xt|time|temporal|frames?|audio|words?|tokens?|chars?|caption|lang(?:uage)?|seq(?:uence)?"
)
_EMBEDS = lazy_regex(r"emb\w*|enc|encodings?|tables?|lookup")
_LAYER = frozenset({"mlp", "proj", "fc", "ffn", "conv", "norm", "net"})
_TEXT = frozenset({"text", "txt", "textual", "language", "lang", "caption", "tokenizer"})
# Words of layers that also name a map over the image: bias_map.
_MAP = lazy_regex(r"(?:^|[._])(?:bias|gate|scale)_?(?:map|grid|field|plane)?$", re.IGNORECASE)
_WEIGHT = lazy_regex(
    r"(?:^|[./_])(?:(?:weight|bias|kernel|scale|gamma|beta)\w*|\w+_(?:weight|bias)|original\d?)$"
    r"|^onnx::(?:MatMul|Gemm|Conv)_\d+$"  # an export has lost the names of these
)
_LOOKUP = lazy_regex(r"(.*?)[./](?:weight|embedding|embeddings?[./]weight)$")
_TOKEN = lazy_regex(
    r"token|tok(?:s\b|\b)|cls|class_?emb|\bclass\b|dist\b|registers?|\breg\b|meta", re.IGNORECASE
)
_NO_TOKEN = lazy_regex(r"mask|pos|type|word|vocab|patch|to_|proj|norm", re.IGNORECASE)
_AXES_OF_NAMES: Sequence[tuple[str, str]] = (
    ("height", "width"),
    ("Height", "Width"),
    ("h", "w"),
    ("H", "W"),
    ("row", "col"),
    ("row", "column"),
    ("rows", "cols"),
    ("y", "x"),
    ("Y", "X"),
    ("vertical", "horizontal"),
    ("freq", "time"),
    ("0", "1"),
    ("1", "2"),  # of three, the first of which counts frames
)
_AXIS_WORD = lazy_regex(
    "|".join(
        rf"(?<![A-Za-z]){word}(?![A-Za-z])|_{word}"
        for two in _AXES_OF_NAMES
        for word in two
        if word.isalpha()
    )
)
_NAMES_KEPT = 4096  # a model has some hundred names that differ in more than numbers


class Sound(IntEnum):
    """What a name says."""

    OTHER = -1  # that it counts something else than the cells of an image
    NOTHING = 0
    POSITION = 1


@dataclass(frozen=True, slots=True)
class TableCandidate:
    """A tensor that may be a position table, and how its axes may be read."""

    tensor: TensorInfo
    layouts: tuple[Layout, ...]
    sound: Sound
    firm: bool = True  # false: its channels are no width of this model


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words: `visual.gridPos_2` → visual, grid, pos, 2."""
    return [word.lower() for word in _WORD.findall(name)]


def sound_of(name: str) -> Sound:
    """Judge the last modules of a name. What an outer module is called says little."""
    return _sound_of(name.translate(SAME_DIGIT))


@lru_cache(maxsize=_NAMES_KEPT)
def _sound_of(name: str) -> Sound:
    """Judge a name in which every digit was replaced by 0: names of blocks differ in numbers."""
    name = name.replace(".parametrizations.weight.original", ".weight")
    lookup = _LOOKUP.fullmatch(name)
    inner = lookup[1] if lookup else name
    if sounds_like_text(name):
        return Sound.OTHER
    last = words_of(re.split(r"[./]", inner)[-1]) or [""]
    near = words_of(".".join(re.split(r"[./]", inner)[-2:]))
    if any(_OTHER.fullmatch(word) for word in last):
        return Sound.OTHER
    embeds = any(_EMBEDS.fullmatch(word) for word in last)
    wanted = _FIRM if (lookup or _WEIGHT.search(name)) and not embeds else _POSITION
    if any(wanted.fullmatch(word) for word in last) or _glued(last, wanted):
        return Sound.POSITION
    if any(word in _LAYER for word in near):
        return Sound.OTHER if lookup else Sound.NOTHING
    return Sound.POSITION if any(_FIRM.fullmatch(word) for word in near) else Sound.NOTHING


def sounds_like_text(name: str) -> bool:
    """Whether a module of a name reads texts: language_model.layers.0."""
    return any(word in _TEXT for word in words_of(name))


def sounds_like_sequence(name: str) -> bool:
    """Whether a name says: positions of frames, of words or of sound."""
    lookup = _LOOKUP.fullmatch(name)
    words = words_of(re.split(r"[./]", lookup[1] if lookup else name)[-1])
    return any(map(_FIRM.fullmatch, words)) and any(map(_SEQUENCE.fullmatch, words))


def _glued(words: Sequence[str], wanted: re.Pattern[str]) -> bool:
    """Whether a word begins with `pos` and goes on as an abbreviation does: posembed, posenc."""
    return any(
        word.startswith("pos") and word != "post" and wanted.match(word[:6]) is not None
        for word in words
    )


def widths_of(tensors: Iterable[TensorInfo]) -> Counter[int]:
    """Count the lengths of norms, biases and single tokens: the widths of a model."""
    return Counter(
        info.shape[-1]
        for info in tensors
        if len(info.shape) == 1
        or (
            (len(info.shape) in (2, 3) and info.shape[0] == info.shape[-2] == 1)
            and _TOKEN.search(info.name)
        )
    )


def has_pixels(tensors: Iterable[TensorInfo]) -> bool:
    """Whether a kernel of the model reads the pixels of an image."""
    return any(True for _ in pixel_kernels(tensors))


def pixel_kernels(tensors: Iterable[TensorInfo]) -> Iterator[str]:
    """List the kernels that read the pixels of an image."""
    return (
        info.name
        for info in tensors
        if len(info.shape) == 4 and info.shape[1] in (1, 3, 4) and min(info.shape[2:]) > 3
    )


def is_matrix_name(name: str) -> bool:
    """Whether a name ends as the weights and biases of layers do."""
    return _WEIGHT.search(name) is not None


def sounds_axial(name: str) -> bool:
    """Whether a name suggests a table of positions, perhaps along one axis."""
    return _HINT.search(name) is not None


def is_plain_layer(tensor: TensorInfo, tensors: Container[str]) -> bool:
    """Sort out most tensors of a model at once: vectors, and weights of layers.

    A layer has a bias beside its weight, or a name without any word of positions.
    """
    name = tensor.name
    if len(tensor.shape) < 2:
        return True
    if not name.endswith((".weight", ".bias")):
        return False
    return f"{name[: -len('.weight')]}.bias" in tensors or _HINT.search(name) is None


def is_convolution(tensor: TensorInfo, tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether a tensor is a kernel with an extent and has its bias beside it."""
    if len(tensor.shape) < 4 or not tensor.name.endswith(".weight"):
        return False
    bias = tensors.get(tensor.name.removesuffix("weight") + "bias")
    return bias is not None and bias.shape == tensor.shape[:1]


def candidate_of(
    tensor: TensorInfo, widths: Mapping[int, int], neutral: Container[str] = ()
) -> TableCandidate | None:
    """Return how a tensor may be read as a table; None if it cannot be one.

    `neutral` are the weights that can hardly be layers (`neutral_names.py`).
    """
    if not DTYPES[tensor.dtype].floating or math.prod(tensor.shape) < FEWEST_ROWS:
        return None
    sound = sound_of(tensor.name)
    if is_stored_map(tensor):
        sound, neutral = max(sound, Sound.NOTHING), (tensor.name,)
    layer = sound is Sound.NOTHING and is_matrix_name(tensor.name) and tensor.name not in neutral
    if sound is Sound.OTHER or layer:
        return None
    layouts = layouts_of(tensor.shape, widths)
    few = len(tensor.shape) > 2 and 1 < tensor.shape[-3] <= _MOST_COORDINATES  # planes of x, y
    if layouts and not (few and tensor.shape[-1] < _FEWEST_FEATURES):
        return TableCandidate(tensor, layouts, sound)
    wanted = sound is Sound.POSITION and widths and not few
    loose = layouts_of(tensor.shape, {})[:1] if wanted else ()
    return TableCandidate(tensor, loose, sound, firm=False) if loose else None


def is_stored_map(tensor: TensorInfo) -> bool:
    """Whether a tensor is a map over the image, [1, d, h, w]: no layer has such a shape."""
    if len(tensor.shape) != 4 or tensor.shape[0] != 1 or min(tensor.shape[1:]) < 2:
        return False
    return sound_of(tensor.name) is not Sound.OTHER or _MAP.search(tensor.name) is not None


def layouts_of(shape: tuple[int, ...], widths: Mapping[int, int]) -> tuple[Layout, ...]:
    """List the layouts that a shape allows, if `d` is a width; without widths, those with d last.

    A shape such as [1, 196, 256] has two readings if both lengths are widths.
    """
    found = []
    for layout in map(Layout.parse, _LAYOUTS.get(len(shape), ())):
        if layout.mismatch(shape) is not None or not _sensible(layout, shape):
            continue
        if "n" in layout.terms and shape[-1] == shape[-2]:  # one number per head and pair of cells
            continue
        channels = shape[layout.terms.index("d")]
        if channels in widths if widths else layout.terms[-1] == "d":
            found.append(layout)
    if len(found) > 1 and len(shape) > 3:
        # What only one bias is as long as is a number of outputs.
        often = [each for each in found if widths and widths[shape[each.terms.index("d")]] > 1]
        found = often or found
    return tuple(found)


def _sensible(layout: Layout, shape: tuple[int, ...]) -> bool:
    channels = shape[layout.terms.index("d")]
    grid = layout.grid(shape)
    if channels < _FEWEST_CHANNELS or layout.rows(shape) < FEWEST_ROWS:
        return False
    if grid is None or (layout.terms[0] == "t" and shape[0] == 1):
        return grid is None
    low, high = sorted((grid.height, grid.width))
    return low >= 2 and high <= _WIDEST_ASPECT * low


def axial_layout(tensor: TensorInfo, axis: str, widths: Mapping[int, int]) -> Layout | None:
    """Return how a tensor with one row per row (`h`) or column (`w`) of cells is laid out."""
    for pattern in _AXIAL.get(len(tensor.shape), ()):
        layout = Layout.parse(pattern.format(axis))
        fits = layout.mismatch(tensor.shape) is None and axis in layout.axes
        if fits and tensor.shape[layout.terms.index("d")] in (widths or tensor.shape):
            return layout if math.prod(tensor.shape) > max(tensor.shape) else None
    return None


@lru_cache(maxsize=_NAMES_KEPT)
def _names_axis(name: str) -> bool:
    return _AXIS_WORD.search(name) is not None


def axial_pair_names(name: str, tensors: Mapping[str, TensorInfo]) -> tuple[str, str] | None:
    """Return the names of two tables that go together, rows of cells first: pos_y and pos_x."""
    if not name.endswith((".0", ".1", ".2")) and not _names_axis(name.translate(SAME_DIGIT)):
        return None  # nearly all names
    for pair in _AXES_OF_NAMES:
        for axis, other_axis in (pair, pair[::-1]):
            if axis not in name or (axis.isdecimal() and not name.endswith(axis)):
                continue
            for found in re.finditer(rf"(?<![A-Za-z]){axis}(?![A-Za-z])|(?<=_){axis}", name):
                if axis.isdecimal() and not _counts_axes(name, axis, pair, tensors):
                    continue  # a list of more than three is one of blocks
                other = name[: found.start()] + other_axis + name[found.end() :]
                if other in tensors and other != name:
                    return (name, other) if axis == pair[0] else (other, name)
    return None


def _counts_axes(
    name: str, axis: str, pair: tuple[str, str], tensors: Mapping[str, TensorInfo]
) -> bool:
    """Whether the numbers of a list are axes: two of an image, or three with frames first."""
    if not name.endswith(f".{axis}"):
        return False
    beside = [f"{name[:-1]}{number}" in tensors for number in range(_MOST_COORDINATES)]
    return beside.index(False) == int(pair[1]) + 1 if False in beside else False


def token_rows(
    stem: str, width: int, tensors: Iterable[TensorInfo]
) -> tuple[tuple[RowCount, ...], tuple[RowCount, ...]]:
    """List the rows that tokens of this model may own: before the grid, and after it.

    If thousands of tables ask, `tensors` should be the tokens alone (`tokens_of`).
    """
    tokens = [info for info in tensors if info.shape[-1:] == (width,) and is_token(info)]
    nearest = max((_shared(stem, info.name) for info in tokens), default=0)
    near = [info for info in tokens if _shared(stem, info.name) == nearest]
    sizes = {info.name: math.prod(info.shape[:-1]) for info in near[:4]}
    found = {0: RowCount(0, "no such rows")}
    for name, count in sizes.items():
        found.setdefault(count, RowCount(count, f"{name} may account for {rows_in_words(count)}"))
    names, total = " + ".join(sizes), sum(sizes.values())
    found.setdefault(total, RowCount(total, f"{names} may account for {rows_in_words(total)}"))
    before = tuple(found.values())
    return before, tuple(each for each in before if each.count <= 1)


def tokens_of(around: Surroundings) -> list[TensorInfo]:
    """List the tokens of a file."""
    return around.once("tokens", lambda: [t for t in around.tensors.values() if is_token(t)])


def is_token(info: TensorInfo) -> bool:
    """Whether a tensor holds tokens, by its name and shape."""
    if not 1 <= len(info.shape) <= 3 or 0 in info.shape:
        return False
    name = info.name
    if is_matrix_name(name):
        return False
    fits = math.prod(info.shape[:-1]) <= _MOST_TOKENS
    return fits and bool(_TOKEN.search(name)) and not _NO_TOKEN.search(re.split(r"[./]", name)[-1])


def _shared(stem: str, name: str) -> int:
    """Count the modules that two names have in common."""
    pairs = zip(re.split(r"[./]", stem), re.split(r"[./]", name), strict=False)
    count = 0
    for one, other in pairs:
        if one != other or not one:
            break
        count += 1
    return count
