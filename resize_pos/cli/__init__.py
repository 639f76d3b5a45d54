"""The command line: parse, call, render, exit. The only place that turns errors into exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from resize_pos.cli._group import group
from resize_pos.cli._terminal import say
from resize_pos.errors import ResizePosError

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if args is None else args)
    # numpy's linear algebra starts a thread for each core when it is imported, which takes longer
    # than everything that we have it do.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = _run(words, debug="--debug" in words)
    if args is None and not _HAVE_ENDINGS & sys.modules.keys():
        # Nothing is open and nothing runs any more. The interpreter would still take everything
        # apart, module by module, for longer than it takes to read a header.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
                stream.flush()
        os._exit(code)
    sys.exit(code)


_HAVE_ENDINGS = {"multiprocessing", "torch", "distributed"}  # want to be told when it is over


def _run(words: list[str], debug: bool) -> int:
    try:
        code = group.main(words, prog_name="resize-pos", standalone_mode=False, obj=words)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ResizePosError as error:
        if debug:
            traceback.print_exc()
        _complain(error.message, error.hint)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted; nothing was left behind.", None)
        return 130
    except BrokenPipeError:
        # The reader of our output went away; what it wanted it has. Keep the shutdown silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        _complain(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in resize-pos; run again with --debug and report what it prints.",
        )
        return 1


def _complain(message: str, hint: str | None) -> None:
    say(("error: ", "red"), message, err=True)
    if hint:
        first, *more = hint.splitlines()
        say(("hint: ", "yellow"), first, err=True)
        for line in more:
            say(line, err=True)
