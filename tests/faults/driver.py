"""Run one conversion again and again, each time disturbed at another place; judge what is left.

`python -m tests.faults.driver NAME FOLDER COUNT KIND …` prints one JSON document. It forks for each
run, which saves the start of the interpreter: hundreds of runs take seconds. Kinds are `errors`,
`signals` and `changes`, each at a counted call, and `kills`: a signal at a moment that is drawn at
random from the time that a whole run takes.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from resize_pos.containers.io.stage_names import OLD_SUFFIX, PART_SUFFIX
from resize_pos.core.system_errors import CAUSES
from tests.faults.conversions import CONVERSIONS, Conversion
from tests.faults.injection import MOVERS, Fault, Injector

LIMIT = 60.0  # seconds until a run counts as hung
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGKILL")
KILLS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")
CHANGES = ("truncate", "replace", "append")

Tree = dict[str, str]  # name → digest


class Ended(NamedTuple):
    """How one run ended."""

    code: int  # negative: killed by that signal
    said: str
    calls: list[str]


def tree(folder: Path) -> Tree:
    """Digest every file, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stages(folder: Path) -> list[str]:
    """Name what unfinished runs left."""
    ends = (PART_SUFFIX, OLD_SUFFIX)
    return sorted(path.name for path in folder.rglob("*") if path.name.endswith(ends))


class Trial:
    """One conversion in one folder, from the same start each time."""

    def __init__(self, conversion: Conversion, folder: Path) -> None:
        self.conversion = conversion
        self.folder = folder
        self.src, self.out = folder / "src", folder / "out"
        self._pristine = folder / "pristine"
        self.source = tree(self._pristine)
        self.reset(replaces=False)
        began = time.monotonic()
        done = self.run(Fault(0))
        assert done.code == 0, done.said
        self.whole = time.monotonic() - began  # the seconds that a run takes; the last one did
        self._good: set[str] = set()  # states from which the next run was right
        self.last = 0  # how the last disturbed run ended
        self.new = self._targets()
        assert self.new, "nothing was written"

    def reset(self, *, replaces: bool) -> None:
        """Put the sources back, and old targets where some are to be replaced."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(self.src, ignore_errors=True)
        shutil.copytree(self._pristine, self.src)
        self.out.mkdir()
        for name in self.conversion.targets if replaces else ():
            target = self.out / name
            if self.conversion.folder:
                target.mkdir()
                target = target / "model.safetensors"
            target.write_text("old")

    def run(self, fault: Fault, *, force: bool = False) -> Ended:
        """Run the command in a fork, disturbed once."""
        said, counted = self.folder / "said", self.folder / "calls"
        counted.unlink(missing_ok=True)
        ready, started = os.pipe()
        child = os.fork()
        if child == 0:
            self._child(fault, said, counted, started, force=force)
        os.close(started)
        os.read(ready, 1)  # the command begins, or the child is gone
        os.close(ready)
        began = time.monotonic()
        deadline = began + LIMIT
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            now = time.monotonic()
            if fault.moment and now > began + fault.moment:
                os.kill(child, getattr(signal, fault.signal))
                fault = fault._replace(moment=0.0)
            if now > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Ended(-999, "hung", [])
            time.sleep(0.001)
        code = os.waitstatus_to_exitcode(ended[1])
        calls = counted.read_text().split() if counted.exists() else []
        return Ended(code, said.read_text(errors="replace"), calls)

    def _child(self, fault: Fault, said: Path, counted: Path, started: int, *, force: bool) -> None:
        code = 99
        try:
            os.chdir(self.folder)
            for name in SIGNALS[:-1]:  # a background job ignores some, and the run leaves that so
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with said.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.argv = ["resize-pos", *self.conversion.words, *(["-f"] if force else [])]
            injector = Injector(self.out, self.src, fault)
            injector.install()
            from resize_pos.cli.app import main

            os.close(started)
            try:
                main(sys.argv[1:])  # given words, it ends with SystemExit
            except SystemExit as end:
                code = int(end.code or 0)
            except KeyboardInterrupt:  # before main handles signals, or after it
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            if not fault.call:
                counted.write_text("\n".join(injector.calls))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _targets(self) -> Tree:
        """Digest the targets; not the ledger and the reports, which hold times."""
        first = tuple(self.conversion.targets)
        return {name: hash_ for name, hash_ in tree(self.out).items() if _under(name, first)}

    def judge(self, fault: Fault, *, replaces: bool) -> list[str]:
        """Run once disturbed, then once undisturbed; name every promise that was broken.

        The undisturbed run is left out if it was right from exactly the same files before.
        """
        self.reset(replaces=replaces)
        old = self._targets()
        done = self.run(fault, force=replaces)
        self.last = done.code
        wrong = list(self._wrong_end(fault, done, old))
        wrong += self._wrong_targets(old, done)
        if not fault.change and tree(self.src) != self.source:
            wrong.append("the source was modified")
        if fault.change:
            shutil.rmtree(self.src)
            shutil.copytree(self._pristine, self.src)
        state = self._state()
        if state not in self._good:
            after = list(self._wrong_next())
            wrong += after
            if not after:
                self._good.add(state)
        return [f"{fault}{', replacing' if replaces else ''}: {line}" for line in wrong]

    def _state(self) -> str:
        """Digest everything that the next run finds: a run from the same state ends the same."""
        empty = {
            path.relative_to(self.folder).as_posix(): "folder"
            for path in (*self.src.rglob("*"), *self.out.rglob("*"))
            if path.is_dir()
        }
        return json.dumps([empty, tree(self.src), tree(self.out)])

    def _wrong_next(self) -> Iterator[str]:
        began = time.monotonic()
        again = self.run(Fault(0), force=True)
        self.whole = time.monotonic() - began
        if again.code != 0:
            yield f"the next run ended with {again.code}: {again.said}"
        elif self._targets() != self.new:
            yield "the next run's target is not the expected one"
        if left := stages(self.folder):
            yield f"after the next run there are stages: {left}"

    def _wrong_end(self, fault: Fault, done: Ended, old: Tree) -> Iterator[str]:
        if "Traceback" in done.said or "this is a bug" in done.said:
            yield f"not an error in words: {done.said}"
        if done.code == -999:
            yield "hung"
        elif fault.signal == "SIGKILL":
            if done.code not in (-signal.SIGKILL, 0):
                yield f"ended with {done.code}"
        elif fault.signal:
            number = getattr(signal, fault.signal)
            expected = 128 + number
            if fault.moment and done.code == -number:  # before main handles signals, or after it
                if self._targets() not in (old, self.new):
                    yield "some targets were written, and the run does not say which"
            elif done.code not in (0, expected):
                yield f"ended with {done.code}, not {expected}: {done.said}"
            elif done.code and "interrupted; " not in done.said:
                yield f"the interrupt is not reported: {done.said}"
            elif done.code and "nothing was written" in done.said and self._targets() == self.new:
                yield f"a lie: {done.said}"
            if stages(self.out):
                yield f"stages were left: {stages(self.out)}"
        elif fault.error in ("short", "EINTR"):
            if done.code:
                yield f"ended with {done.code}: {done.said}"
        elif done.code not in (0, 1):
            yield f"ended with {done.code}: {done.said}"
        elif done.code == 1:
            if "error: " not in done.said and "failed" not in done.said:
                yield f"no error is told: {done.said!r}"
            names = {*self.conversion.targets, *self.conversion.reports, *self._sources()}
            if not any(Path(name).name in done.said for name in (*names, ".resize-pos-batch")):
                yield f"the error names no file: {done.said}"
            if fault.error and not any(words in done.said for words in _words(fault.error)):
                yield f"the error names no cause: {done.said}"

    def _sources(self) -> Iterator[str]:
        return (name for name in self.source)

    def _wrong_targets(self, old: Tree, done: Ended) -> Iterator[str]:
        now = self._targets()
        for name in self.conversion.targets:
            was, is_, new = (_below(it, name) for it in (old, now, self.new))
            if is_ not in (was, new):
                yield f"{name} is torn: {sorted(is_)}"
            if done.code == 0 and is_ != new:
                yield f"{name} is not there, although the run succeeded"
        for name in self.conversion.reports:
            with contextlib.suppress(FileNotFoundError):
                text = (self.out / name).read_text(errors="replace")
                if not _whole_report(name, text):
                    yield f"{name} is torn ({len(text)} characters)"


def _whole_report(name: str, text: str) -> bool:
    if name.endswith(".json"):
        try:
            return isinstance(json.loads(text), dict)
        except ValueError:
            return False
    return text.rstrip().endswith("</html>") if name.endswith(".html") else text.endswith("\n")


def _under(name: str, targets: tuple[str, ...]) -> bool:
    return any(name == target or name.startswith(f"{target}/") for target in targets)


def _below(files: Tree, target: str) -> Tree:
    return {name: hash_ for name, hash_ in files.items() if _under(name, (target,))}


def _words(error: str) -> list[str]:
    import errno

    number = getattr(errno, error)
    return [os.strerror(number), CAUSES.get(number, (os.strerror(number),))[0]]


def faults(calls: Sequence[str], kinds: Sequence[str]) -> list[Fault]:
    """List every fault of some kinds, at every call."""
    found: list[Fault] = []
    for call, name in enumerate(calls, start=1):
        if "errors" in kinds:
            found += [Fault(call, error=error) for error in ERRORS]
            if name in MOVERS:
                found.append(Fault(call, error="short"))
            if name in ("copy_file_range", "sendfile"):  # Python itself resumes the others
                found.append(Fault(call, error="EINTR"))
        if "signals" in kinds:
            found += [Fault(call, signal=s, after=a) for s in SIGNALS for a in (False, True)]
        if "changes" in kinds:
            found += [Fault(call, change=change) for change in CHANGES]
    return found


def spread(found: Sequence[Fault], count: int) -> list[Fault]:
    """Choose `count` of the faults, evenly and always the same ones."""
    if count >= len(found):
        return list(found)
    return [found[(number * len(found)) // count] for number in range(count)]


def kill(trial: Trial, count: int, counts: dict[str, int]) -> Iterator[str]:
    """End runs at random moments until each signal ended `count` of them; name what was broken."""
    random = Random(0)
    for name in KILLS:
        done = tries = 0
        while done < count and tries < 20 * count:
            replaces = bool(tries % 2)
            moment = random.uniform(0.0001, trial.whole)
            yield from trial.judge(Fault(0, signal=name, moment=moment), replaces=replaces)
            tries += 1
            done += trial.last != 0  # otherwise the run was over
        counts[f"killed by {name}"] = done


def main(name: str, folder: Path, count: int, kinds: Sequence[str]) -> None:
    """Disturb one conversion, `count` times in each kind of way, and print what was found."""
    trial = Trial(CONVERSIONS[name], folder)
    wrong: list[str] = []
    counts: dict[str, int] = {}
    if "kills" in kinds:
        wrong += kill(trial, count, counts)
    kinds = [kind for kind in kinds if kind != "kills"]
    for replaces in (False, True):
        trial.reset(replaces=replaces)
        calls = trial.run(Fault(0), force=replaces).calls
        for kind in kinds:
            if kind == "changes" and trial.conversion.linked:
                continue  # what changes a source in place changes its hard links; --help says so
            for fault in spread(faults(calls, [kind]), count):
                wrong += trial.judge(fault, replaces=replaces)
                what = fault.error or fault.signal or fault.change
                counts[what] = counts.get(what, 0) + 1
    tried = sum(counts.values())
    print(json.dumps({"conversion": name, "tried": tried, "kinds": counts, "wrong": wrong}))  # noqa: T201


def _warm_up(name: str, folder: Path) -> None:
    """Run the conversion once in this process, so that every fork has its imports and caches."""
    from resize_pos.cli.app import main as command

    (folder / "warm" / "out").mkdir(parents=True)
    shutil.copytree(folder / "pristine", folder / "warm" / "src")
    os.chdir(folder / "warm")
    silent = io.StringIO()
    with (
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
        contextlib.suppress(SystemExit),
    ):
        command(list(CONVERSIONS[name].words))
    os.chdir(folder)
    shutil.rmtree(folder / "warm")
    assert threading.active_count() == 1  # a fork has the calling thread only
    gc.freeze()


if __name__ == "__main__":
    _warm_up(sys.argv[1], Path(sys.argv[2]))
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
