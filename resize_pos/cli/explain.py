"""`resize-pos explain`: what an error message means, and the command that helps."""

from __future__ import annotations

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


@click.command("explain")
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

    MESSAGE may be a whole log; without it, the log is read from stdin.
    """
    log = " ".join(message) if message and message != ("-",) else _stdin()
    found = explain(log)
    if not found:
        raise ResizePosError("no message that is known was found.", hint=_KNOWN)
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


def _command(explanation: Explanation, named: str | None) -> str | None:
    if explanation.options is None:
        return None
    source = named if named and explanation.source == "CHECKPOINT" else None
    words = explanation.source if source is None else shlex.quote(source)
    return f"resize-pos {words} {explanation.options}"


def _stdin() -> str:
    if sys.stdin.isatty():
        raise UsageError("no message is given.", hint="pass it in quotes, or a log on stdin.")
    return sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")


def _named_in(log: str) -> str | None:
    """Return the checkpoint that a log names, if it names exactly one."""
    suffixes = "|".join(re.escape(suffix) for suffix in WEIGHT_SUFFIXES)
    found = set(re.findall(rf"[\w./~-]+(?:{suffixes})(?![\w.])", log))
    return found.pop() if len(found) == 1 else None
