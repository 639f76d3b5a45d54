"""The description of one layout, read from TOML. An unknown or missing key is refused."""

from __future__ import annotations

import math
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from resize_pos.core.axes import Layout
from resize_pos.core.conventions import (
    CONVENTIONS,
    RELATIVE_CONVENTIONS,
    Convention,
    RelativeConvention,
)
from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.operations import Mixing
from resize_pos.core.tensors import TensorInfo

if TYPE_CHECKING:
    from resize_pos.families.windows import DerivedRule, WindowRule

SAME_DIGIT = str.maketrans("123456789", "000000000")
_NUMBERS_IN_SYNTAX = lazy_regex(r"\{|\\[1-9]|\[\^")  # their digits must not be replaced
_STEM = r"(?P<stem>(?:.*?[./])??)"  # non-greedy, so that a key can begin with a module


class Role(StrEnum):
    """What one row of a table stands for."""

    ABSOLUTE = "absolute"  # a patch of the image
    MIXING = "mixing"  # a patch that a fully connected layer over all patches reads or writes
    RELATIVE = "relative"  # an offset between two patches
    DISTANCE = "distance"  # a distance |Δ| between two patches
    SEQUENCE = "sequence"  # a token of a text
    DERIVED = "derived"  # nothing of its own: computed from the geometry of other tables
    REFERENCE = "reference"  # a patch of a grid that the library resamples while it runs
    INDEX = "index"  # a coordinate used directly as row number, such as "row 17"
    KERNEL = "kernel"  # no row at all: the patch embedding, which `--to-patch` changes
    QUERY = "query"  # no row at all: weights that make queries, which `--attention-scale` changes
    INERT = "inert"  # nothing that depends on the image size


@dataclass(frozen=True, slots=True)
class Owner:
    """Possible rows before or after a grid: a plain count, or one per token of sibling tensors."""

    count: int
    siblings: tuple[str, ...]

    @classmethod
    def parse(cls, value: object) -> Owner:
        """Read `1`, or `"cls_token + reg_token"`."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value, ())
        if isinstance(value, str) and value.strip():
            return cls(0, tuple(part.strip() for part in value.split("+")))
        raise ResizePosError(f"{value!r} is neither a count nor names of sibling tensors.")


@dataclass(frozen=True, slots=True)
class Family:
    """How one group of models names its position tables and lays them out."""

    name: str
    title: str
    role: Role
    key: str
    axes: tuple[Layout, ...]
    prefix: tuple[Owner, ...] = (Owner(0, ()),)
    suffix: tuple[Owner, ...] = (Owner(0, ()),)
    patch: tuple[str, ...] = ()
    window: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # each entry: alternatives separated by "|"
    absent: tuple[str, ...] = ()
    follows: str | None = None
    scaled: bool = False
    mixes: Mixing | None = None  # for a layer over patches: what it does with them
    least: int = 0  # rows; a smaller table of this name may be another model's
    tiles: int = 0  # side in cells of the window that the table repeats with; 0: it does not
    audio: str = ""  # a spectrogram: "mel time", or "time/2" for rows of two frames
    stepwise: bool = False  # one row per whole step, although a patch sees more than a step
    volume: bool = False  # `t` is the depth of a volume; a cube is then the likeliest shape
    convention: Convention | RelativeConvention | None = None
    windows: WindowRule | None = None
    derived: DerivedRule | None = None
    models: tuple[str, ...] = ()  # model types of a config that claim the table for this family
    named: str | None = None  # a regular expression, searched in the name, that claims it
    padded: bool = False  # if a config has pad_token_id: that + 1 reserved rows
    kept: str | None = None  # why such a table is never changed
    why: str = ""  # why a reference, index or inert tensor is left alone
    refuse: str = ""
    forcible: bool = False
    source: str = ""

    def stem(self, name: str) -> str | None:
        """Match a tensor's name; return the part before the key, or None."""
        found = _compiled(self.key).fullmatch(name)
        if found is None or (self.windows is not None and self.windows.place(name) is None):
            return None
        return found["stem"]

    def objection(self, stem: str, tensors: Mapping[str, TensorInfo], shape: Sequence[int]) -> str:
        """Return why a tensor with a matching name is not of this family; empty if it is."""
        for alternatives in self.requires:
            names = [part.strip() for part in alternatives.split("|")]
            if not any(_present(name, stem, tensors) for name in names):
                shown = " or ".join(stem + name for name in names)
                return f"needs {shown}, which is not in the file"
        for unwanted in self.absent:
            if _present(unwanted, stem, tensors):
                return f"{stem}{unwanted} is in the file"
        if shape and shape[0] < self.least:
            return f"has {shape[0]} rows, fewer than the {self.least} of every such model"
        layouts = self._layouts(stem, tensors, shape)
        if self.axes and self.layout(shape, stem, tensors) is None:
            reasons = "; ".join(str(layout.mismatch(tuple(shape))) for layout in layouts)
            return f"its shape {list(shape)} has {reasons}"
        return ""

    @property
    def one_frame(self) -> bool:
        """Whether this is a table of single images in a model that reads tubes of frames."""
        return any(name.endswith(":5") for name in self.requires) and not any(
            layout.has_time for layout in self.axes
        )

    @property
    def must_be_claimed(self) -> bool:
        """Whether matching key and shape are not enough: a config or the whole name must match."""
        return bool(self.models) or self.named is not None

    def claims(self, name: str) -> bool:
        """Whether the whole name of a tensor shows that it belongs to this family."""
        return self.named is not None and re.search(self.named, name) is not None

    def layout(
        self, shape: Sequence[int], stem: str = "", tensors: Mapping[str, TensorInfo] | None = None
    ) -> Layout | None:
        """Return the first axis pattern that fits a shape."""
        layouts = self._layouts(stem, tensors or {}, shape)
        return next((axes for axes in layouts if axes.mismatch(tuple(shape)) is None), None)

    def _layouts(
        self, stem: str, tensors: Mapping[str, TensorInfo], shape: Sequence[int]
    ) -> tuple[Layout, ...]:
        """Fill in the lengths inside a group that only the leading table states."""
        leader = tensors.get(stem + self.follows) if self.follows else None
        if leader is None or len(leader.shape) < 2:
            return self.axes
        rows, channels = leader.shape[-2:]
        copies = max(1, math.prod(shape[-1:]) // (rows * channels))
        return tuple(
            axes.bind(k=copies, d=channels) if axes.pattern.endswith("(k (p h w s) d)") else axes
            for axes in self.axes
        )


_CONDITION = lazy_regex(r"(~?)([^:@#]+)([:@#]?)(\d*)")


def _present(name: str, stem: str, tensors: Mapping[str, TensorInfo]) -> bool:
    """Whether a sibling exists; `~name` searches the whole checkpoint.

    `name:5` must have five axes, `name@7` a 7×7 kernel, `name#1` one input channel. `name.*` is
    any name that begins with `name.`.
    """
    if name.endswith("*"):
        return _index(tensors).begins(stem + name[:-1])
    if name.startswith("~"):
        return _index(tensors).anywhere(name)
    info, kind, number = _condition(name, stem, tensors)
    return info is not None and _shaped(info.shape, kind, number)


def _condition(
    name: str, stem: str, tensors: Mapping[str, TensorInfo]
) -> tuple[TensorInfo | None, str, str]:
    found = _CONDITION.fullmatch(name)
    assert found is not None, name
    return tensors.get(stem + found[2]), found[3], found[4]


class _NameIndex:
    """The names of one checkpoint, sorted for fast lookup.

    Every table looks up its siblings. Without this index, that would be quadratic in the number
    of tensors.
    """

    def __init__(self, tensors: Mapping[str, TensorInfo]) -> None:
        self.tensors = tensors
        self.count = len(tensors)
        self._sorted: list[str] | None = None
        self._answers: dict[str, bool] = {}

    def begins(self, prefix: str) -> bool:
        if self._sorted is None:
            self._sorted = sorted(self.tensors)
        at = bisect_left(self._sorted, prefix)
        return at < len(self._sorted) and self._sorted[at].startswith(prefix)

    def anywhere(self, condition: str) -> bool:
        if condition not in self._answers:
            found = _CONDITION.fullmatch(condition)
            assert found is not None, condition
            _, name, kind, number = found.groups()
            self._answers[condition] = any(
                other.endswith(name) and _shaped(info.shape, kind, number)
                for other, info in self.tensors.items()
            )
        return self._answers[condition]


_last_index = _NameIndex({})


def _index(tensors: Mapping[str, TensorInfo]) -> _NameIndex:
    """Return the index of a checkpoint; the last one is cached."""
    global _last_index
    index = _last_index
    if index.tensors is not tensors or index.count != len(tensors):
        index = _last_index = _NameIndex(tensors)
    return index


def _shaped(shape: Sequence[int], kind: str, number: str) -> bool:
    if kind == ":":
        return len(shape) == int(number)
    if kind == "@":
        return len(shape) > 3 and list(shape[-2:]) == [int(number)] * 2
    return not kind or (len(shape) > 1 and shape[1] == int(number))


@cache
def _compiled(key: str) -> re.Pattern[str]:
    return re.compile(f"{_STEM}(?:{key})")


def key_may_match(key: str, alike: str) -> bool:
    """Whether the key of a family may match a name in which every digit was replaced by 0."""
    if _NUMBERS_IN_SYNTAX.search(key):
        return True
    return _compiled(key.translate(SAME_DIGIT)).fullmatch(alike) is not None


def load_families(text: str) -> tuple[Family, ...]:
    """Read a registry from TOML; refuse unknown keys, missing keys and repeated names."""
    document = tomllib.loads(text)
    if set(document) != {"family"}:
        raise ResizePosError(f"families: expected only [[family]] entries, found {set(document)}.")
    families = tuple(_family(entry) for entry in document["family"])
    names = [family.name for family in families]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ResizePosError(f"families: {sorted(repeated)[0]!r} is defined twice.")
    return families


# How unknown tables are laid out, if nobody says more: flat rows first, then stored grids.
USUAL_AXES = (
    *("1 (p h w s) d", "(p h w s) d", "(p h w s) 1 d", "1 h w d", "h w d"),
    *("1 d h w", "d h w", "1 d (p h w s)", "d (p h w s)"),
)


def name_pattern(flag: str, *patterns: str) -> re.Pattern[str]:
    """Compile the regular expressions that the user gave for names of tensors."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{flag} {pattern!r} is not a regular expression: {error}.") from None
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def custom_family(pattern: str, axes: str | None) -> Family:
    """Make a family from `--pattern` and `--axes`, for a table that no family knows."""
    name_pattern("--pattern", pattern)
    layouts = tuple(map(Layout.parse, USUAL_AXES if axes is None else (axes,)))
    lines = any("l" in term for layout in layouts for term in layout.terms)
    return Family(
        name="custom",
        title="given by --pattern and --axes",
        role=Role.SEQUENCE if lines else Role.ABSOLUTE,
        key=f".*(?:{pattern}).*",
        axes=layouts,
        source="the command line",
    )


_REQUIRED = frozenset({"name", "title", "role", "key", "source"})
_OWNERS = frozenset({"prefix", "suffix"})
_NAMES = frozenset({"patch", "window", "requires", "absent", "models"})
_PLAIN: Mapping[str, type] = {
    **dict.fromkeys(("follows", "named", "kept", "why", "refuse", "audio"), str),
    **dict.fromkeys(("padded", "scaled", "volume", "forcible", "stepwise"), bool),
    **dict.fromkeys(("tiles", "least"), int),
}


def _window_rule(entry: Mapping[str, Any]) -> WindowRule:
    from resize_pos.families.windows import WindowRule  # only few models have windows

    return WindowRule.parse(entry)


def _derived_rule(entry: Mapping[str, Any]) -> DerivedRule:
    from resize_pos.families.windows import DerivedRule

    return DerivedRule.parse(entry)


_RULES: Mapping[str, Callable[[Any], object]] = {
    "windows": _window_rule,
    "derived": _derived_rule,
    "mixes": Mixing,
}
AUDIO = ("mel time", "time/2")
_SCALAR = Layout("scalar", ())  # a single number, such as CLIP's input_resolution
_OPTIONAL = _OWNERS | _NAMES | set(_PLAIN) | set(_RULES) | {"axes", "convention"}


def _family(entry: Mapping[str, Any]) -> Family:
    name = entry.get("name", "?")
    unknown = set(entry) - _REQUIRED - _OPTIONAL
    missing = _REQUIRED - set(entry)
    if unknown or missing:
        raise ResizePosError(
            f"families: {name!r} has unknown keys {sorted(unknown)} and lacks {sorted(missing)}."
        )
    try:
        _compiled(entry["key"])
        role = Role(entry["role"])
        values: dict[str, Any] = {key: entry[key] for key in ("name", "title", "key", "source")}
        values |= {key: tuple(map(Owner.parse, entry[key])) for key in _OWNERS & set(entry)}
        values |= {key: tuple(entry[key]) for key in _NAMES & set(entry)}
        values |= {key: parse(entry[key]) for key, parse in _RULES.items() if key in entry}
        values["axes"] = tuple(
            _SCALAR if axes == _SCALAR.pattern else Layout.parse(axes)
            for axes in entry.get("axes", ())
        )
        values |= {key: _plain(key, entry[key]) for key in set(_PLAIN) & set(entry)}
        re.compile(entry.get("named", ""))
        if not (role is Role.RELATIVE and "derived" in entry):
            values["convention"] = _convention(role, entry.get("convention"))
        _check_role(role, values)
    except (ResizePosError, ValueError, re.error) as error:
        raise ResizePosError(f"families: {name!r}: {error}") from error
    return Family(role=role, **values)


def _plain(key: str, value: object) -> object:
    if not isinstance(value, _PLAIN[key]):
        raise ValueError(f"{key} = {value!r} is not a {_PLAIN[key].__name__}")
    return value


def _check_role(role: Role, values: Mapping[str, Any]) -> None:
    inert = role is Role.INERT
    if bool(values["axes"]) is inert:
        raise ValueError(f"{role} families have {'no ' if inert else ''}axes")
    if (role is Role.MIXING) != ("mixes" in values):
        raise ValueError("mixing families, and only these, have `mixes`")
    if values.get("audio", "") not in ("", *AUDIO):
        raise ValueError(f"audio = {values['audio']!r} is none of {', '.join(AUDIO)}")
    if role in (Role.INERT, Role.REFERENCE, Role.INDEX) and not values.get("why"):
        raise ValueError(f"{role} families say why they are left alone")


_CONVENTIONS: Mapping[Role, Mapping[str, Convention | RelativeConvention]] = {
    Role.ABSOLUTE: CONVENTIONS,
    Role.REFERENCE: CONVENTIONS,
    Role.RELATIVE: RELATIVE_CONVENTIONS,
    Role.DISTANCE: RELATIVE_CONVENTIONS,
}


def _convention(role: Role, name: str | None) -> Convention | RelativeConvention | None:
    if name is None and role not in _CONVENTIONS:
        return None
    if name is None or name not in _CONVENTIONS.get(role, {}):
        raise ValueError(f"no convention {name!r} for {role} tables")
    return _CONVENTIONS[role][name]
