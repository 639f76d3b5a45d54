"""The command line: parse, call, render, exit. The only place that turns errors into exit codes.

`resize` is the default command; every command is imported when it is used.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from resize_pos._version import __version__
from resize_pos.cli.signals import number_of, raising
from resize_pos.cli.terminal import say
from resize_pos.core.errors import ResizePosError
from resize_pos.core.system_errors import system_error

_COMMANDS = {
    "resize": "Transfer a checkpoint to another resolution (the default).",
    "inspect": "Show the position tables of a checkpoint, and why similar tensors are not.",
    "verify": "Check a resized checkpoint against its source, or whether it fits a size.",
    "compare": "Several resized checkpoints, or conventions, side by side.",
    "batch": "Transfer every checkpoint of a zoo, unattended.",
    "families": "List every layout that is known, with its source.",
}


class DefaultCommandGroup(click.Group):
    """A group that takes `CHECKPOINT …` for `resize CHECKPOINT …`.

    A bare word is always a command, so that a typing error is never taken for a file name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command where the first word cannot be one."""
        if args and self._belongs_to_resize(ctx, args[0]):
            args = ["resize", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; leave a reader that went away to the one place that ends the program."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Without an errno click does not take it for its own business, which is to exit with 1.
            raise BrokenPipeError from None

    def _belongs_to_resize(self, ctx: click.Context, word: str) -> bool:
        if word.startswith("-"):
            own = {name for param in self.get_params(ctx) for name in param.opts}
            return word != "--" and word.split("=")[0] not in own
        return any(mark in word for mark in "./\\")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, most used first."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command when it is asked for."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"resize_pos.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Look a command up; suggest the nearest one for a typing error."""
        if args and not ctx.resilient_parsing and args[0] not in _COMMANDS:
            import difflib  # only a mistyped command needs it

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(
                f"No such command {args[0]!r}.{guess}\n"
                f"A checkpoint is recognised by a dot or a slash: write ./{args[0]} for a folder."
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=DefaultCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="resize-pos", message="%(prog)s %(version)s")
def group() -> None:
    """Transfer a model checkpoint to another input resolution.

    \b
      resize-pos vit.safetensors --from 224 --to 384

    finds the position tables, interpolates them from 14×14 to 24×24 patches, copies every other
    byte untouched to vit-384.safetensors, and says what the interpolation did.

    \b
      resize-pos inspect vit.safetensors       what is there, without loading it
      resize-pos vit.safetensors --to 384 -n   what would be done

    Exit codes: 0 done, dry run, or already at the target; 1 could not be done; 2 usage;
    3 done, but a check failed (or --strict met a warning).
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if args is None else args)
    # numpy's linear algebra starts a thread for each core when it is imported, which takes longer
    # than everything that we have it do.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if args is None:
        # A header of many tensors makes many objects, and none of them is garbage. With Python's
        # own threshold, looking for garbage takes a third of the time of reading them.
        gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    _prepare_streams()
    with raising():
        code = _run(words, debug="--debug" in words)
    if args is None and not _HAVE_ENDINGS & sys.modules.keys():
        # Nothing is open and nothing runs any more. The interpreter would still take everything
        # apart, module by module, for longer than it takes to read a header.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it is gone, or closed
                stream.flush()
        os._exit(code)
    sys.exit(code)


_OBJECTS_BEFORE_COLLECTION = 100_000  # some 10 MB
_HAVE_ENDINGS = {"multiprocessing", "torch", "distributed"}  # want to be told when it is over


def _show_traceback() -> None:
    import traceback  # only --debug needs it

    traceback.print_exc()


def _run(words: list[str], debug: bool) -> int:
    before = _count_written()
    try:
        code = group.main(words, prog_name="resize-pos", standalone_mode=False, obj=words)
        return code if isinstance(code, int) else 0
    except ResizePosError as error:
        if debug:
            _show_traceback()
        _complain(error.message, error.hint)
        _mention_written(before)
        return error.exit_code
    except click.ClickException as error:
        _show_usage(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        _complain(_interrupted(error), None)
        return 128 + number_of(error)
    except BrokenPipeError:
        # The reader of our output went away; what it wanted it has. Keep the shutdown silent.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            _show_traceback()
        known = system_error(error)
        if known is not None:
            _complain(known.message, known.hint)
            return known.exit_code
        _complain(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in resize-pos; run again with --debug and report what it prints.",
        )
        return 1


def _interrupted(error: BaseException) -> str:
    """Say what a run that was interrupted has left behind."""
    notes = getattr(error.__cause__ or error, "__notes__", ())
    if notes:
        return f"interrupted; {notes[0]}"
    from resize_pos.containers.io.atomic_output import placed

    done = placed()
    if not done:
        return "interrupted; nothing was written."
    return f"interrupted; already complete and in place: {', '.join(map(str, done))}"


def _count_written() -> int:
    """Count what this process wrote before: main may be called several times."""
    module = sys.modules.get("resize_pos.containers.io.atomic_output")
    return 0 if module is None else len(module.placed())


def _mention_written(before: int) -> None:
    """After a failure, name what was written: only a report or stdout failed after it."""
    if "resize_pos.containers.io.atomic_output" not in sys.modules:
        return
    from resize_pos.containers.io.atomic_output import placed

    done = placed()[before:]
    if 0 < len(done) <= _MOST_NAMED:
        say(f"already complete and in place: {', '.join(map(str, done))}", err=True)


_MOST_NAMED = 4


def _show_usage(error: click.ClickException) -> None:
    """Show what click says about the words that were typed; they may hold names of files."""
    context = getattr(error, "ctx", None)
    if context is not None:
        for line in context.get_usage().splitlines():
            say(line, err=True)
        say(f"Try '{context.command_path} --help' for help.", err=True)
        say("", err=True)
    first, *more = error.format_message().split(_LINE_BREAK)
    say(f"Error: {first}", err=True)
    for line in more:
        say(line, err=True)


_LINE_BREAK = "\n"


def _prepare_streams() -> None:
    """Make sure that there are three streams, and that no text is unwritable for its characters."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        # The next file to be opened would get the number of the stream that is closed.
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _complain(message: str, hint: str | None) -> None:
    say(("error: ", "red"), message, err=True)
    if hint:
        first, *more = hint.split("\n")
        say(("hint: ", "yellow"), first, err=True)
        for line in more:
            say(line, err=True)
