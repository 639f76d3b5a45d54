"""How a failure is told: in words on stderr; with `--json` also as a document on stdout."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence

import click

from resize_pos.cli.terminal import say, say_json
from resize_pos.core.errors import OutputError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.lazy_regex import lazy_regex

ERROR_SCHEMA = "resize-pos/error/1"
_LINE_BREAK = "\n"
_JSON = ("--json", "--format json", "--format=json")
_SUGGESTION = lazy_regex(r" \(Did you mean one of: .*\?\)| Did you mean .*\?")
_BETWEEN_SIDES = lazy_regex(r"\s*[x×*,;]\s*|\s+", re.I)


@dataclass(frozen=True, slots=True)
class Failures:
    """Tells what went wrong in the format that the command line asks for."""

    as_json: bool = False
    one_line: bool = False  # a batch prints one document per line

    @classmethod
    def of(cls, words: Sequence[str]) -> Failures:
        """Read the format off the words that were typed, which may be wrong otherwise."""
        options = words[: words.index("--")] if "--" in words else words
        typed = f" {' '.join(options)} "
        asked = any(f" {asking} " in typed for asking in _JSON)
        return cls(asked, one_line="batch" in words[:1])

    def tell(self, message: str, hint: str | None, code: int) -> int:
        """Say what went wrong and how to go on; return the exit code."""
        say(("error: ", "red"), message, err=True)
        if hint:
            first, *more = hint.split(_LINE_BREAK)
            say(("hint: ", "yellow"), first, err=True)
            for line in more:
                say(line, err=True)
        self._document(message, hint, code)
        return code

    def tell_usage(self, error: click.ClickException) -> int:
        """Show what click says about the words that were typed; they may hold names of files."""
        context = getattr(error, "ctx", None)
        hint = None
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
            error.show()
            self._document("no checkpoint and no command is given.", None, error.exit_code)
            return error.exit_code
        if context is not None:
            for line in context.get_usage().splitlines():
                say(line, err=True)
            hint = f"Try '{context.command_path} --help' for help."
            say(hint, err=True)
            say("", err=True)
        message = error.format_message()
        advice = _advice(message, context)
        if advice:  # click suggests options by their letters; we know what the word means
            message = _SUGGESTION.sub("", message)
        first, *more = [*message.split(_LINE_BREAK), *_also_a_path(context), *advice]
        say(f"Error: {first}", err=True)
        for line in more:
            say(line, err=True)
        self._document(message, hint, error.exit_code)
        return error.exit_code

    def _document(self, message: str, hint: str | None, code: int) -> None:
        if not self.as_json:
            return
        document = {"schema": ERROR_SCHEMA, "error": message, "hint": hint, "code": code}
        with contextlib.suppress(OutputError, BrokenPipeError):  # stdout may be what failed
            say_json(document, indent=None if self.one_line else 2)


def _also_a_path(context: click.Context | None) -> list[str]:
    """Say how to name a file that has the name of a command."""
    name = None if context is None or context.parent is None else context.info_name
    if name is None or not os.path.lexists(name):
        return []
    return [f"{name!r} is a command here; to convert the checkpoint {name}, write ./{name}"]


def _advice(message: str, context: click.Context | None) -> list[str]:
    """Say what was probably meant by words that click does not expect."""
    if context is None:
        return []
    if context.info_name == "inspect" and re.search(r"No such option:? '?--to\b", message):
        return [
            "inspect has no target. To see what would be done: resize-pos CHECKPOINT --to SIZE -n"
        ]
    dashed = _one_dash(message, context)
    if dashed or context.info_name not in ("resize", "batch"):
        return dashed
    option = re.search(r"No such option:? '?--([\w-]+)", message)
    if option is not None:
        return _our_word(option[1].replace("-", "_"), context)
    extra = re.search(r"unexpected extra arguments? \((.+)\)", message)
    if extra is None:
        return []
    words = extra[1].split()
    spaced = spaced_name([str(context.params.get("checkpoint", "")), *words])
    if spaced is not None:
        return [f"A name with spaces needs quotes: {spaced}"]
    sides = _BETWEEN_SIDES.split(f"{context.params.get('to') or ''} {extra[1]}".strip())
    if all(side.isdecimal() for side in filter(None, sides)):
        return [f"For an image size, write --to {'x'.join(filter(None, sides))}."]
    if any(os.path.lexists(word) for word in words):
        return ["For several checkpoints, write: resize-pos batch FILES --to SIZE -o FOLDER"]
    return []


def _one_dash(message: str, context: click.Context) -> list[str]:
    """Say how to write a long option with both dashes, or a file whose name begins with one."""
    if re.search(r"No such option:? '?-\w", message) is None:
        return []
    words = [word for word in context.find_object(list) or () if re.match(r"-\w\w", word)]
    for word in words:
        if os.path.lexists(word):
            return [f"For a file whose name begins with a dash, write ./{word}"]
        if any(f"-{word}" in param.opts for param in context.command.params):
            return [f"A long option has two dashes: -{word}"]
    return []


def image_size(number: str, names: Sequence[str]) -> str:
    """Say how to write a size that stands where the checkpoint should."""
    name = shlex.quote(names[0]) if names and os.path.lexists(names[0]) else "CHECKPOINT"
    return f"For an image size, write: resize-pos {name} --to {number}"


def spaced_name(words: Sequence[str]) -> str | None:
    """Return the existing path, quoted, that the first words make up if it was not quoted."""
    for count in range(2, len(words) + 1):
        if os.path.lexists(name := " ".join(words[:count])):
            return shlex.quote(name)
    return None


def _our_word(word: str, context: click.Context) -> list[str]:
    """Say what an option of other tools is called here."""
    from resize_pos.core.other_words import OTHER_WORDS

    ours = [p.opts for p in context.command.params if p.name == OTHER_WORDS.get(word)]
    return [f"Here it is called {ours[0][-1]}."] if ours else []
