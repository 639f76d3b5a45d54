"""Messages name flags of the command line. Here they become keyword arguments of the Python API.

`pass --to 384` becomes `pass to=384`. The names come from the table of options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.options import JOB_OPTIONS, Kind, Option, request_options

# Arguments of the API that are no options of a conversion.
_OTHERS: Mapping[str, str] = {
    "--against": "against",
    "--images": "images",
    "--model": "model",
    "--model-arg": "model_args",
    "--push": "push",
    "--push-pr": "push_pr",
    "--report": "reports",
}
# How a message writes a value: a size, a number, several numbers, a placeholder, a quoted text.
_VALUE = "|".join(
    (
        r"\d+(?:x\d+)*(?![\w.]*\w)",
        r"-?\d+(?:\.\d+)?(?![\w.]*\w)",
        r"[(\[]\d[^()\[\]]*[)\]]",
        r"[A-Z][\w|]*\b",
        r"'[^']*'",
        r"\"[^\"]*\"",
    )
)
_FLAG = lazy_regex(rf"(?<![\w-])(--[a-z]+(?:-[a-z]+)*)(?: ({_VALUE}|[\w:.-]*\w))?")
_COMMANDS = lazy_regex(r"`?resize-pos (inspect|verify|compare)(?: -v)?`?")
_OUTPUT = lazy_regex(r"(?<![\w-])-o\b(?: ([A-Z]+\b(?!\.\w)|-(?!\w)|[\w*-]*[./:][\w./*:-]*\w))?")


# What is written in another way in Python.
_PHRASES: Mapping[str, str] = {
    "write 384, or 384x512 for 384 high and 512 wide; 64x96x96 for a volume, depth first.": (
        "pass 384, or (384, 512) for 384 high and 512 wide; (64, 96, 96) for a volume, depth first."
    ),
    "write 24, or 24x32 for 24 high and 32 wide; 4x6x6 for a volume, depth first.": (
        "pass 24, or (24, 32) for 24 high and 32 wide; (4, 6, 6) for a volume, depth first."
    ),
}


def _by_flag() -> dict[str, tuple[Option, bool]]:
    """Return each flag with its option, and whether the flag says no."""
    found: dict[str, tuple[Option, bool]] = {}
    for option in (*request_options(), *JOB_OPTIONS):
        for flag in option.flags:
            found[flag] = option, flag.startswith("--no-")
        if option.kind is Kind.SWITCH and not option.long_flag.startswith("--no-"):
            found[f"--no-{option.long_flag.removeprefix('--')}"] = option, True
    return found


def in_python(text: str) -> str:
    """Rewrite a message for a caller of the Python API."""
    if text in _PHRASES:
        return _PHRASES[text]
    flags = _by_flag()

    def rewrite(found: re.Match[str]) -> str:
        flag, value = found[1], found[2]
        rest = "" if value is None else f" {value}"
        if flag in _OTHERS:
            shown = value is not None and re.fullmatch(_VALUE, value) is not None
            return f"{_OTHERS[flag]}={value}" if shown else f"{_OTHERS[flag]}{rest}"
        if flag not in flags:
            return found[0]
        option, negative = flags[flag]
        if option.kind in (Kind.FLAG, Kind.SWITCH):
            return f"{option.name}={not negative}{rest}"
        if value is None or not _is_value(option, value):
            return f"{option.name}{rest}"
        return f"{option.name}={_literal(value)}"

    text = _COMMANDS.sub(
        lambda found: f"`{found[1]}_checkpoint{'s' * (found[1] == 'compare')}`", text
    )
    text = _OUTPUT.sub(lambda found: f"output={_place(found[1])}", text)
    return _FLAG.sub(rewrite, text)


def _place(text: str | None) -> str:
    """Write an output as Python source; a placeholder such as PATH stays as it is."""
    if text is None:
        return "PATH"
    return text if text.isupper() else f'"{text}"'


def _is_value(option: Option, text: str) -> bool:
    """Tell a value from the next word of the sentence."""
    named = option.kind is Kind.TEXT and re.search("[_:.]", text)
    return text in option.choices or bool(named) or re.fullmatch(_VALUE, text) is not None


def _literal(text: str) -> str:
    """Write a value as Python source; a placeholder stays as it is."""
    is_size = "x" in text and text[0].isdecimal()
    if text in ("True", "False", "None") or (text[0] in "'\"([-0123456789" and not is_size):
        return text
    if text.isupper() or text in ("HxW", "N|HxW"):
        return text
    return f'"{text}"'
