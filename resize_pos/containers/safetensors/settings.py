"""Sizes in the metadata of a safetensors file: "img_size": "224", or a config as JSON text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resize_pos.containers.size_settings import MOST_SIDES, SAME_NAME, SIZE_KEYS
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.json_edit import KeyPath, parse, replace_value
from resize_pos.core.lazy_regex import lazy_regex

_OWN = "resize_pos"  # the record of an earlier conversion, which states its own sizes
# Every edit reads the text again, once for each level, so all three are limited.
_LONGEST = 1 << 20  # characters of a text that is searched
_DEEPEST = 8  # levels of a config
_MOST = 100  # settings
_OTHER_FORM = "it is text in a form that is not edited"
_PAIR = lazy_regex(r"\(?\s*(\d{1,6})\s*[x×,]\s*(\d{1,6})\s*\)?")


@dataclass(frozen=True, slots=True)
class MetadataSetting:
    """One number or a short list of numbers, and where in the metadata it is."""

    value: int | list[int]
    key: str
    path: KeyPath = ()  # inside the JSON text
    fixed: str = ""  # why it cannot be changed; empty: it can


def metadata_settings(metadata: Mapping[str, str]) -> Mapping[str, MetadataSetting]:
    """Find the values whose names say that they may be a size or a length."""
    found: dict[str, MetadataSetting] = {}
    for setting in _all(metadata):
        name = ".".join((setting.key, *setting.path))
        if name in found:
            setting = MetadataSetting(setting.value, setting.key, setting.path, SAME_NAME)
        found[name] = setting
        if len(found) >= _MOST:
            break
    return found


def changed_metadata(metadata: Mapping[str, str], values: Mapping[str, object]) -> dict[str, str]:
    """Return the metadata with new values; every other character stays as it is."""
    changed = dict(metadata)
    settings = metadata_settings(metadata)
    for name, value in values.items():
        setting = settings[name]
        assert not setting.fixed
        changed[setting.key] = replace_value(changed[setting.key], setting.path, value)
    return changed


def _all(metadata: Mapping[str, str]) -> Iterator[MetadataSetting]:
    for key, text in metadata.items():
        named = key in SIZE_KEYS
        if key == _OWN or len(text) > _LONGEST or not (named or any(k in text for k in SIZE_KEYS)):
            continue
        pair = _PAIR.fullmatch(text.strip()) if named else None
        if pair is not None:
            yield MetadataSetting([int(pair[1]), int(pair[2])], key, fixed=_OTHER_FORM)
            continue
        try:
            document = parse(text)
        except ValueError:
            continue
        for path, value in _numbers(document):
            if (path[-1] if path else key) in SIZE_KEYS:
                yield MetadataSetting(value, key, path)


def _numbers(document: Any) -> Iterator[tuple[KeyPath, int | list[int]]]:
    """Yield every number and every short list of numbers, with the keys that lead to it."""
    waiting: list[tuple[KeyPath, Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and len(path) < _DEEPEST:
            waiting += [((*path, key), inner) for key, inner in reversed(value.items())]
        elif type(value) is int or _is_short(value):
            yield path, value


def _is_short(value: object) -> bool:
    short = isinstance(value, list) and 0 < len(value) <= MOST_SIDES
    return short and all(type(part) is int for part in value)  # type: ignore[attr-defined]
