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
from resize_pos.cli.failures import Failures, image_size, spaced_name
from resize_pos.cli.signals import number_of, raising
from resize_pos.cli.terminal import say, unwritable_stdout
from resize_pos.core.errors import OutputError, ResizePosError
from resize_pos.core.system_errors import system_error

_COMMANDS = {
    "resize": "Transfer a checkpoint to another resolution (the default).",
    "inspect": "Show the position tables of a checkpoint, and why similar tensors are not.",
    "verify": "Check a resized checkpoint against its source, or whether it fits a size.",
    "compare": "Several resized checkpoints, or conventions, side by side.",
    "batch": "Transfer every checkpoint of a zoo, unattended.",
    "explain": "Say what an error message of torch, timm or transformers means, and what to run.",
    "families": "List every layout that is known, with its source.",
}


class DefaultCommandGroup(click.Group):
    """A group that takes `CHECKPOINT …` for `resize CHECKPOINT …`.

    A word is a checkpoint if it looks like a path or is one. The name of a command is always the
    command; `./inspect` is a folder of that name.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command where the first word cannot be one."""
        if args and self._belongs_to_resize(ctx, args[0]):
            args = ["resize", *args]
        elif args[:1] == ["--"] and args[1:2] and os.path.lexists(args[1]):
            # What comes after the name are options as ever; only the name may begin with a dash.
            args = ["resize", _as_path(args[1]), *args[2:]]
        elif args and args[0] == "help":  # `help` and `help inspect`, as other tools have them
            args = [*_topic(ctx, args[1:2]), "--help"]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete a command or a file. Bash shows either, so names of files are given as words."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        if not found:
            return [CompletionItem(incomplete, type="file")]
        if incomplete and not incomplete.startswith("-"):
            found += [CompletionItem(name) for name in _names_beginning(incomplete)]
        return found

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
        if word in _COMMANDS:
            return False
        return any(mark in word for mark in "./\\") or os.path.lexists(word)

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
            from difflib import get_close_matches  # only a mistyped command needs these

            from resize_pos.core.other_words import OTHER_COMMANDS

            meant = [OTHER_COMMANDS[args[0]]] if args[0] in OTHER_COMMANDS else []
            near = meant or get_close_matches(args[0], (*_COMMANDS, "help"), n=1)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            if args[0].isdecimal():
                ctx.fail(f"No such command {args[0]!r}.\n{image_size(args[0], args[1:2])}")
            spaced = spaced_name(args)
            if spaced is not None:
                ctx.fail(f"No such command {args[0]!r}.\nA name with spaces needs quotes: {spaced}")
            ctx.fail(
                f"No such command {args[0]!r}.{guess}\n"
                "There is no file or folder of that name here either. For a model on the hub, "
                "write hf://ORG/NAME."
            )
        return super().resolve_command(ctx, args)


def _as_path(name: str) -> str:
    """Write a name so that it is neither an option nor a command."""
    return name if name.startswith(os.sep) else f"./{name}"


def _topic(ctx: click.Context, words: list[str]) -> list[str]:
    """Return the command that help is asked for; none for `help help`."""
    if words and words[0] not in (*_COMMANDS, "help"):
        ctx.fail(f"There is no command {words[0]!r}. The commands are {', '.join(_COMMANDS)}.")
    return [word for word in words if word in _COMMANDS]


def _names_beginning(start: str) -> list[str]:
    """List the entries of the current folder whose names begin so; a folder ends with a slash."""
    with contextlib.suppress(OSError), os.scandir() as entries:
        return sorted(
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name.startswith(start)
        )
    return []


@click.group(
    cls=DefaultCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="resize-pos", message="%(prog)s %(version)s"
)
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
    try:
        with raising():
            code = _run(words, debug="--debug" in words)
    except KeyboardInterrupt as error:  # the signal came just before the run, or just after its end
        code = Failures.of(words).tell(_interrupted(error), None, 128 + number_of(error))
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
    before, failures = _count_written(), Failures.of(words)
    try:
        if sys.stdout is None:  # every command prints its result; find out before it does its work
            raise OutputError(
                "standard output is closed, so the result cannot be printed.",
                hint="to run without output, write > /dev/null instead of >&-.",
            )
        code = group.main(words, prog_name="resize-pos", standalone_mode=False, obj=words)
        return code if isinstance(code, int) else 0
    except ResizePosError as error:
        if debug:
            _show_traceback()
        failures.tell(error.message, error.hint, error.exit_code)
        _mention_written(before)
        return error.exit_code
    except click.ClickException as error:
        return failures.tell_usage(error)
    except (click.Abort, KeyboardInterrupt) as error:
        return failures.tell(_interrupted(error), None, 128 + number_of(error))
    except BrokenPipeError:
        # The reader of our output went away; what it wanted it has. Keep the shutdown silent.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            _show_traceback()
        known = _output_error(error) or system_error(error)
        if known is not None:
            return failures.tell(known.message, known.hint, known.exit_code)
        return failures.tell(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in resize-pos; run again with --debug and report what it prints.",
            1,
        )


def _output_error(error: Exception) -> OutputError | None:
    """Translate what click met when it printed help or a version, which it does without `say`."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if not isinstance(error, OSError) or last is None or last.tb_frame.f_code is not _CLICK_PRINTS:
        return None
    return unwritable_stdout(error)


_CLICK_PRINTS = click.echo.__code__


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
