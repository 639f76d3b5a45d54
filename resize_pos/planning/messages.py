"""Error messages of torch, timm and transformers: what they mean, and the command that helps.

Only the text of a log is known here, not the checkpoint. A number of rows is read as a grid only if
the checkpoint's and the model's rows fit the same number of extra rows (class token, registers).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

_SHAPE = r"(?:torch\.Size\()?\[([\d, ]*)\]\)?"
_NAME = r"([\w.\[\]-]+)"

# How torch, transformers 4, transformers 5 and a bare comparison write the same fact.
_MISMATCHES = (
    lazy_regex(
        rf"size mismatch for {_NAME}: copying a param with shape {_SHAPE} from checkpoint, "
        rf"the shape in current model is {_SHAPE}"
    ),
    lazy_regex(
        rf"{_NAME}: found shape {_SHAPE} in the checkpoint and {_SHAPE} in the model instantiated"
    ),
    lazy_regex(rf"{_NAME}\s*\|[^\n]*size mismatch - ckpt: {_SHAPE} vs model: ?{_SHAPE}"),
)
_TOKENS = lazy_regex(
    r"(?:Image|Video) features and (?:image|video) tokens do not match[:,]? "
    r"tokens: (\d+), features:? (\d+)"
)
_INPUT = lazy_regex(
    r"Input (?:image )?(size|height|width) \((\d+)(?:[*x](\d+))?\) doesn't match model"
    r"\s*\((\d+)(?:[*x](\d+))?\)"
)
_ADDED = lazy_regex(
    r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
    r"dimension 1\b"
)

_POSITION = lazy_regex(
    r"pos(?:ition)?(?:al)?_?(?:emb|enc|ids)|position_ids|pos_table|\bwpe\b", re.I
)
_TEXT = lazy_regex(r"\b(?:bert|roberta|gpt2?|transformer\.wpe|wpe|text(?:_model)?|decoder)\b", re.I)
_IMAGE = lazy_regex(r"vis(?:ion|ual)|image|vit\b|patch|backbone|encoder\.layers", re.I)
_RELATIVE = lazy_regex(r"relative_position_bias_table|rel_pos_(?:h|w|bias)|attention_biases")
_DERIVED = lazy_regex(r"relative_position_index|attn_mask|relative_coords|position_ids")
_HEAD = lazy_regex(r"\b(?:head|classifier|fc|score|logits|out_proj)[\w.]*\.(?:weight|bias)$")

_NOT_SQUARE = "for an image that is not square, write --to HEIGHTxWIDTH."

_EXTRA_ROWS = (1, 0, 2, 5, 9, 17)  # cls; none; cls and distillation; cls and 4, 8, 16 registers
_PATCHES = (16, 14, 32, 8)
_MOST_READINGS = 4


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a message means, and the options of `resize-pos CHECKPOINT` that help, if any do."""

    title: str
    meaning: tuple[str, ...]
    options: str | None = None
    source: str = "CHECKPOINT"  # or FOLDER, if weights and configs must change together


def explain(log: str) -> tuple[Explanation, ...]:
    """Explain every message in a log that is known, each once."""
    found: dict[Explanation, None] = {}
    for explanation in (
        *_mismatches(log),
        *(_tokens(*map(int, pair)) for pair in _TOKENS.findall(log)),
        *_inputs(log),
        *_added(log),
    ):
        found[explanation] = None
    return tuple(found)


def _mismatches(log: str) -> Iterator[Explanation]:
    """Explain shapes that differ. Tables of one cause, such as one per block, are put together."""
    pairs = {
        match[0]: (_dims(match[1]), _dims(match[2]))
        for pattern in _MISMATCHES
        for match in pattern.findall(log)
    }
    groups: dict[tuple[str | None, tuple[str, ...]], list[Explanation]] = {}
    for name, (old, new) in pairs.items():
        one = _mismatch(name, old, new)
        groups.setdefault((one.options, one.meaning), []).append(one)
    for alike in groups.values():
        more = f" and {len(alike) - 1} alike" if len(alike) > 1 else ""
        yield Explanation(f"{alike[0].title}{more}", alike[0].meaning, alike[0].options)


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _mismatch(name: str, old: Sequence[int], new: Sequence[int]) -> Explanation:
    title = f"{name}: {list(old)} in the checkpoint, {list(new)} in the model"
    for fits, words in _KINDS:
        if fits(name, old, new):
            meaning, options = words(name, old, new)
            return Explanation(title, meaning, options)
    return Explanation(
        title,
        (
            "The two have another architecture (width, depth or classes), not another image size.",
            "resize-pos does not change that: build the model that the checkpoint was made with.",
        ),
    )


_Words = tuple[tuple[str, ...], str | None]


def _differing(old: Sequence[int], new: Sequence[int]) -> list[int]:
    if len(old) != len(new):
        return []
    return [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]


def _is_derived(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    return _DERIVED.search(name) is not None and old != new


def _derived(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    del name, old, new
    return (
        (
            "A buffer that is computed from the image size or the window.",
            "resize-pos recomputes it together with the tables; no option of its own is needed.",
        ),
        None,
    )


def _is_relative(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    return _RELATIVE.search(name) is not None and len(_differing(old, new)) == 1


def _relative(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    (axis,) = _differing(old, new)
    before, after = old[axis], new[axis]
    if "rel_pos_h" in name or "rel_pos_w" in name:
        cells = f"{(before + 1) // 2} cells", f"{(after + 1) // 2} cells"
        return (
            (
                f"A table of relative positions along one axis: {cells[0]} in the checkpoint, "
                f"{cells[1]} in the model. The model is for another image size.",
            ),
            "--to SIZE",
        )
    for extra, what in ((0, "window"), (3, "grid")):  # BEiT adds three rows for its class token
        sides = [_window(rows - extra) for rows in (before, after)]
        if sides[0] and sides[1]:
            words = (
                f"A table of relative positions: {what} {sides[0]}×{sides[0]} in the checkpoint "
                f"({before} offsets), {sides[1]}×{sides[1]} in the model ({after} offsets)."
            )
            flag = "--to-window" if what == "window" else "--to-grid"
            return (
                (words, "The model is for another image size, or another window."),
                (f"{flag} {sides[1]}" if what == "window" else f"{flag} {sides[1]}x{sides[1]}"),
            )
    return (
        (f"A table of relative positions with {before} and {after} offsets: another window.",),
        "--to SIZE",
    )


def _window(rows: int) -> int:
    """Return the window whose offsets −(n−1) … n−1 make this many rows; 0: none."""
    side = math.isqrt(max(0, rows))
    return (side + 1) // 2 if side * side == rows and side % 2 else 0


def _is_grid(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    axes = _differing(old, new)
    return _POSITION.search(name) is not None and len(axes) == 2 and axes[1] == axes[0] + 1


def _grid(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    del name
    first, second = _differing(old, new)
    return _resized(f"{old[first]}×{old[second]}", (new[first], new[second]), "stored as a grid")


def _is_rows(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    return _POSITION.search(name) is not None and len(_differing(old, new)) == 1


def _rows(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    (axis,) = _differing(old, new)
    if axis == len(old) - 1:
        return (
            (
                f"The vectors have {old[axis]} and {new[axis]} numbers: another model, not "
                "another image size. resize-pos does not change that.",
            ),
            None,
        )
    return _row_words(name, old[axis], new[axis])


def _row_words(name: str, before: int, after: int) -> _Words:
    extra = _extra_rows(before, after)
    is_text, is_image = _TEXT.search(name), _IMAGE.search(name)
    no_square = extra is None and _side(before, 1) is None
    if (is_text or no_square) and not is_image:
        return (
            (
                f"A table of {before} positions of a text; the model expects {after}.",
                "Growing a text table needs a recipe: see docs/text.md for the five that exist.",
            ),
            f"--to-length {after}" + (" --length-method linear" if after > before else ""),
        )
    if extra is not None:
        sides = [math.isqrt(rows - extra) for rows in (before, after)]
        rows = {0: "without extra rows", 1: "both with 1 extra row, the class token"}.get(
            extra, f"both with {extra} extra rows, such as registers"
        )
        return _resized(f"{sides[0]}×{sides[0]}", (sides[1], sides[1]), rows)
    readings = _readings(after)
    return (
        (
            f"The checkpoint has {before} positions, the model {after}: another image size.",
            f"{after} may be {readings}: state the height and width of your images.",
        ),
        "--to HEIGHTxWIDTH",
    )


def _extra_rows(before: int, after: int) -> int | None:
    """Return how many extra rows leave a square on both sides; None if no usual number does."""
    for extra in _EXTRA_ROWS:
        if _side(before, extra) is not None and _side(after, extra) is not None:
            return extra
    return None


def _side(rows: int, extra: int) -> int | None:
    side = math.isqrt(max(0, rows - extra))
    return side if side > 1 and side * side == rows - extra else None


def _readings(rows: int) -> str:
    found = [
        f"{extra} + {height}×{(rows - extra) // height}" if extra else f"{height}×{rows // height}"
        for extra in (1, 0)
        for height in range(math.isqrt(rows), 1, -1)
        if (rows - extra) % height == 0 and (rows - extra) // height <= 4 * height
    ]
    return ", ".join(found[:_MOST_READINGS]) or "a grid"


def _resized(before: str, grid: tuple[int, int], rows: str) -> _Words:
    height, width = grid
    pixels = ", ".join(
        f"{_sides(height * patch, width * patch)} px at patch {patch}" for patch in _PATCHES[:3]
    )
    return (
        (
            f"The checkpoint holds {before} patches, the model {height}×{width} ({rows}). The "
            "checkpoint was made for another image size.",
            f"{height}×{width} patches are {pixels}.",
        ),
        f"--to-grid {height}x{width}",
    )


def _sides(height: int, width: int) -> str:
    return str(height) if height == width else f"{height}x{width}"


def _is_kernel(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    del name
    axes = _differing(old, new)
    return len(old) == 4 and bool(axes) and min(axes) >= 2


def _kernel(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    del name
    return (
        (f"The patches are {old[2]}×{old[3]} pixels in the checkpoint, {new[2]}×{new[3]} here.",),
        f"--to-patch {_sides(new[2], new[3])}",
    )


def _is_head(name: str, old: Sequence[int], new: Sequence[int]) -> bool:
    return _HEAD.search(name) is not None and _differing(old, new) == [0]


def _head(name: str, old: Sequence[int], new: Sequence[int]) -> _Words:
    del name
    return (
        (
            f"The head has {old[0]} classes in the checkpoint and {new[0]} in the model. That has "
            "nothing to do with the image size.",
            "Leave these tensors out: fit_checkpoint(…, ignore_mismatched_sizes=True) in Python.",
        ),
        None,
    )


_Test = Callable[[str, Sequence[int], Sequence[int]], bool]
_KINDS: tuple[tuple[_Test, Callable[[str, Sequence[int], Sequence[int]], _Words]], ...] = (
    (_is_derived, _derived),
    (_is_relative, _relative),
    (_is_grid, _grid),
    (_is_rows, _rows),
    (_is_head, _head),
    (_is_kernel, _kernel),
)


def _tokens(tokens: int, features: int) -> Explanation:
    meaning = [
        f"The processor wrote {tokens} image tokens into the text; the vision tower gives "
        f"{features} features. Processor, config and weights are for different image sizes.",
    ]
    sides = math.isqrt(tokens), math.isqrt(features)
    if sides[0] ** 2 == tokens and sides[1] ** 2 == features:
        meaning.append(
            f"{tokens} = {sides[0]}×{sides[0]} and {features} = {sides[1]}×{sides[1]} patches."
        )
    meaning.append(
        "`resize-pos verify FOLDER --config` says which file disagrees. Convert the original "
        "folder: weights, config and processor then change together."
    )
    title = f"Image features and image tokens do not match: {tokens} tokens, {features} features"
    return Explanation(title, tuple(meaning), "--to SIZE", "FOLDER")


def _inputs(log: str) -> Iterator[Explanation]:
    """Explain the check of the input size. Height and width may be two messages of their own."""
    for side, height, width, own_height, own_width in _INPUT.findall(log):
        given = _sides(int(height), int(width or height))
        own = _sides(int(own_height), int(own_width or own_height))
        yield Explanation(
            f"The image is {given} px, and the model was built for {own} px",
            (
                f"Build the model for {given} px (timm: img_size={_literal(given)}; transformers: "
                "image_size in config.json), and convert the checkpoint to that size.",
                f"Or feed images of {own} px.",
                *(() if side == "size" else (f"The message tells only the {side}; {_NOT_SQUARE}",)),
            ),
            f"--to {given}",
        )


def _literal(size: str) -> str:
    return size if size.isdecimal() else f"({size.replace('x', ', ')})"


def _added(log: str) -> Iterator[Explanation]:
    for first, second in _ADDED.findall(log):
        tokens, rows = int(first), int(second)
        extra = _extra_rows(rows, tokens)
        if extra is None:
            continue  # two tensors of any kind were added
        sides = [math.isqrt(count - extra) for count in (rows, tokens)]
        meaning, options = _resized(f"{sides[0]}×{sides[0]}", (sides[1], sides[1]), "in the image")
        yield Explanation(
            f"{tokens} tokens of the image are added to a table of {rows} positions",
            (
                "The image is larger or smaller than the model was built for.",
                meaning[1],
            ),
            options,
        )
