# ruff: noqa: T201  its figures are what it prints
"""Change a module in one place, run its tests, and list the changes that no test noticed.

`python -m tests.mutation [--most N] [--seed N] [MODULE …]`: at most N mutants of each module, drawn
at random. Each runs in a process that is forked after torch was imported. Only the tests run that
call the changed function, the fastest first; for a line outside of functions, all tests of the
module run. A survivor is a test that is missing, or a change that has no effect;
docs/reliability.md says which.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.mutation.calls import Calls, function_at
from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
SECONDS = 180  # of processor time: a mutant that loops for ever is noticed, too
WAIT = 1800  # one that waits for ever as well
MEMORY = 4 << 30  # so is one that asks for too much of it

_CONTAINERS = "tests/containers/test_"
_PLANS = ["tests/planning", "tests/cases", "tests/transforms/test_relative.py"]
MODULES: dict[str, Sequence[str]] = {
    "transforms.kernels": ["tests/transforms/test_kernels.py", "tests/transforms/test_absolute.py"],
    "core.axes": ["tests/core/test_axes.py", "tests/transforms/test_absolute.py", *_PLANS],
    "core.geometry": ["tests/core/test_geometry.py", *_PLANS],
    "planning.geometry.grid_solver": _PLANS,
    "planning.geometry.smoothness": _PLANS,
    "planning.plan": [*_PLANS, "tests/audio", "tests/volumes/test_volumes.py"],
    "planning.rules.absolute": _PLANS,
    "planning.rules.target": [*_PLANS, "tests/volumes/test_volumes.py"],
    "containers.safetensors.header": [f"{_CONTAINERS}safetensors_file.py"],
    "containers.safetensors.file": [f"{_CONTAINERS}safetensors_file.py"],
    "containers.io.splice": [f"{_CONTAINERS}splice.py", f"{_CONTAINERS}safetensors_file.py"],
    "containers.zip.records": [
        f"{_CONTAINERS}zip_archives.py",
        f"{_CONTAINERS}torch_zip.py",
        f"{_CONTAINERS}hostile_pickles.py",
    ],
    "containers.zip.layout": [
        f"{_CONTAINERS}zip_archives.py",
        f"{_CONTAINERS}torch_zip.py",
        f"{_CONTAINERS}reformat.py",
    ],
    "containers.pickle.walk": [
        f"{_CONTAINERS}hostile_pickles.py",
        f"{_CONTAINERS}torch_zip.py",
        "tests/hostile/test_limits.py",
    ],
    "containers.npz.header": [f"{_CONTAINERS}npz.py"],
    "containers.sharded": [f"{_CONTAINERS}sharded.py"],
}


class _Mutated(importlib.abc.Loader):
    """Loads the changed code in place of the module's own."""

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self.name:
            return None
        loader = _Mutated(self.code)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=str(self.path))


def is_noticed(name: str, path: Path, mutant: Mutant, tests: Sequence[str]) -> bool:
    """Run the tests with a changed module; whether any of them fails."""

    def change() -> list[object]:
        signal.alarm(WAIT)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        changed = compile(mutant.tree, str(path), "exec")
        sys.meta_path.insert(0, _Finder(name, path, changed))
        return []

    return _forked(tests, change) != 0


@cache
def callers(tests: tuple[str, ...]) -> dict[str, dict[int, list[str]]] | None:
    """Run the unchanged tests; list for each function of the package the tests that call it.

    The keys are its file and first line; the fastest test comes first. None if a test fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "calls.json"
        if _forked(tests, lambda: [Calls(ROOT / "resize_pos", found)]) != 0:
            return None
        calls = json.loads(found.read_text(encoding="utf-8"))
    return {
        path: {int(line): names for line, names in functions.items()}
        for path, functions in calls.items()
    }


def _forked(tests: Sequence[str], prepare: Callable[[], list[object]]) -> int:
    """Run pytest in a forked process; return how it ended, 0 if all tests passed."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.setpgid(0, 0)
            _silence()
            plugins = prepare()
            with tempfile.TemporaryDirectory() as folder:
                words = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", *tests]
                code = int(pytest.main(words, plugins=plugins))
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status


def _silence() -> None:
    empty = os.open(os.devnull, os.O_WRONLY)
    os.dup2(empty, 1)
    os.dup2(empty, 2)


def main() -> None:
    """Try the modules that were named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as core.axes")
    parser.add_argument("--most", type=int, default=1 << 30, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(ROOT)
    import torch  # noqa: F401  once, not in every process

    print("| module | mutants | noticed | survivors |\n|---|---|---|---|", flush=True)
    for short in options.modules or MODULES:
        name, tests = f"resize_pos.{short}", MODULES[short]
        path = ROOT / (name.replace(".", "/") + ".py")
        calls = callers(tuple(tests))
        if calls is None:
            raise SystemExit(f"{short}: its tests fail before anything was changed.")
        text = path.read_text(encoding="utf-8")
        found = list(mutants(text))
        chosen = random.Random(options.seed).sample(found, min(options.most, len(found)))
        survivors = []
        for each in chosen:
            function = function_at(text, each.line)
            asked = calls.get(str(path), {}).get(function, []) if function else tests
            if not asked or not is_noticed(name, path, each, asked):
                survivors.append(each)
        count = len(chosen)
        print(f"| {short} | {count} | {count - len(survivors)} | {len(survivors)} |", flush=True)
        for survivor in sorted(survivors, key=lambda each: each.line):
            print(f"  {short}:{survivor.line} {survivor.change}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
