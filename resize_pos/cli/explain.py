"""`resize-pos explain`: what an error message means, and the command that helps."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import click

from resize_pos.cli.options import DEBUG_OPTION, JSON_OPTION
from resize_pos.cli.terminal import say, say_json, tell
from resize_pos.containers.detect import WEIGHT_SUFFIXES
from resize_pos.core.errors import ResizePosError, UsageError
from resize_pos.planning.messages import Explanation, explain

_LONGEST = 64 << 20  # bytes of a log
_KNOWN = (
    "known are torch's and transformers' size mismatches, timm's check of the input size, and "
    "transformers' count of image tokens."
)
_HOW = "pass the message in quotes, or a log on stdin: python train.py 2>&1 | resize-pos explain"


class _Explain(click.Command):
    """A command whose message may begin with a dash, as the lists of transformers do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take no message for an option: an option has no spaces."""
        hidden = [f"\n{word}" if word[:1] == "-" and " " in word else word for word in args]
        return super().parse_args(ctx, hidden)


@click.command("explain", cls=_Explain)
@click.argument("message", nargs=-1)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The checkpoint to name in the command [default: the one that the log names].",
)
@JSON_OPTION
@DEBUG_OPTION
def command(message: tuple[str, ...], checkpoint: Path | None, as_json: bool) -> None:
    """Say what an error MESSAGE means, and print the command that helps.

    \b
      resize-pos explain "size mismatch for pos_embed: copying a param with shape …"
      resize-pos explain < train.log
      python train.py 2>&1 | resize-pos explain

    MESSAGE may be a whole log, or the name of a file with one; without it, the log is read from
    stdin.
    """
    log = _log(message) if message and message != ("-",) else _stdin()
    found = explain(log)
    if not found:
        raise _not_understood(log, message)
    named = str(checkpoint) if checkpoint is not None else _named_in(log)
    if as_json:
        say_json(
            {
                "schema": "resize-pos/explanation/1",
                "explanations": [
                    {
                        "message": each.title,
                        "meaning": list(each.meaning),
                        "command": _command(each, named),
                    }
                    for each in found
                ],
            }
        )
        return
    for each in found:
        say((each.title, "bold"))
        for words in each.meaning:
            tell(words, indent=2, hang=0)
    commands = dict.fromkeys(filter(None, (_command(each, named) for each in found)))
    for number, line in enumerate(commands):
        say("run: " if not number else "  or ", (line, "bold"))


def _not_understood(log: str, message: tuple[str, ...]) -> ResizePosError:
    """Say why nothing was found: no such log, half a message, or one that is not known."""
    named = message[0] if len(message) == 1 and not os.path.lexists(message[0]) else ""
    if re.fullmatch(r"\S*[./]\w+", named):
        return UsageError(f"{named}: no such file, and no message that is known.", hint=_HOW)
    if re.search(r"size mismatch|mismatched sizes", log, re.I):
        return ResizePosError(
            "the message says that a size does not match, but not both shapes.",
            hint="paste the whole line: it ends with two shapes such as torch.Size([1, 197, 768]).",
        )
    return ResizePosError("no message that is known was found.", hint=_KNOWN)


def _command(explanation: Explanation, named: str | None) -> str | None:
    if explanation.options is None:
        return None
    source = named if named and explanation.source == "CHECKPOINT" else None
    words = explanation.source if source is None else shlex.quote(source)
    return f"resize-pos {words} {explanation.options}"


def _log(message: tuple[str, ...]) -> str:
    """Return the message, or what the file holds that it names."""
    if len(message) == 1 and os.path.lexists(message[0]):
        if message[0].endswith(WEIGHT_SUFFIXES):
            raise UsageError(
                f"{message[0]} is a checkpoint, not a log.",
                hint=f"resize-pos inspect {shlex.quote(message[0])} shows what it holds.",
            )
        if Path(message[0]).is_dir():
            raise UsageError(f"{message[0]}: is a folder, not a log.", hint=_HOW)
        with Path(message[0]).open("rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    return " ".join(message)


def _stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():  # None: it was closed by whoever started us
        raise UsageError("no message is given.", hint=_HOW)
    log = sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")
    if not log.strip():
        raise UsageError("the log on stdin is empty.", hint=_HOW)
    return log


def _named_in(log: str) -> str | None:
    """Return the checkpoint that a log names, if it names exactly one."""
    suffixes = "|".join(re.escape(suffix) for suffix in WEIGHT_SUFFIXES)
    found = set(re.findall(rf"[\w./~-]+(?:{suffixes})(?![\w.])", log))
    return found.pop() if len(found) == 1 else None
