"""Every command and every piece of Python in the documents is run by a test, or has a reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```", re.M | re.S)
CODE = {"console", "python", "sh", "bash", "make", ""}

RECIPES = "tests/docs/test_recipes.py::test_a_recipe_does_what_it_says"
DOCS = "tests/docs/test_docs.py"
CI = "tests/docs/test_ci_docs.py"
SAMPLES = "tests/docs/test_samples.py::test_the_code_of_the_readme_runs"
FIT = "tests/docs/test_fit_recipe.py"

# (document, language) → the tests that run all of its blocks. The recipes that test_recipes.py
# lists are added below.
RUN_BY: dict[tuple[str, str], tuple[str, ...]] = {
    ("README.md", "console"): (f"{DOCS}::test_the_readme_s_commands_do_what_it_shows",),
    ("README.md", "python"): (f"{DOCS}::test_the_python_of_the_readme_runs",),
    ("README.md", "sh"): ("tests/cli/test_shells.py::test_a_file_is_completed",),
    ("CONTRIBUTING.md", "console"): (
        f"{DOCS}::test_the_family_recipe_followed_to_the_letter_passes_the_tests",
    ),
    ("docs/ci.md", "console"): (f"{CI}::test_the_commands_do_what_the_page_shows",),
    ("docs/ci.md", "python"): (f"{CI}::test_the_training_script_runs",),
    ("docs/ci.md", "make"): (f"{CI}::test_the_recipes_of_the_makefile_run",),
    ("docs/release.md", "sh"): (
        "tests/docs/test_packaging.py::test_the_commands_of_a_release_work_in_an_empty_environment",
    ),
    ("docs/scale.md", "console"): (f"{CI}::test_the_commands_do_what_the_page_shows",),
    ("docs/text.md", "console"): (
        "tests/docs/test_text_docs.py::test_the_commands_do_what_the_page_shows",
    ),
    ("docs/recipes/audio.md", "console"): (
        "tests/audio/test_spectrograms.py::test_the_recipe_s_command_works",
    ),
    ("docs/recipes/diffusion.md", "console"): (
        "tests/latents/test_latents.py::test_the_recipe_s_command_works",
    ),
    ("docs/recipes/video.md", "console"): (
        "tests/video/test_frames.py::test_the_recipe_s_command_works",
    ),
    ("docs/recipes/volumes.md", "console"): (
        "tests/volumes/test_volumes.py::test_the_recipe_s_command_works",
    ),
    ("docs/recipes/fit.md", "python"): (
        f"{FIT}::test_the_plain_snippets",
        f"{FIT}::test_the_callback_of_transformers",
        f"{FIT}::test_the_callback_of_lightning",
    ),
    ("sample_checkpoints/README.md", "python"): (SAMPLES,),
    ("sample_checkpoints/README.md", "console"): (SAMPLES,),
}

# A line of a block that no test runs → why.
NOT_RUN: dict[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "pip install -c constraints.txt"): "this is the CI run itself",
    ("docs/scale.md", "dask scheduler --port"): (
        "starts servers on a fixed port; tests/run starts a cluster of its own for --dask, and "
        "test_the_shell_scripts_parse checks the syntax"
    ),
    ("docs/scale.md", "#!/bin/sh"): "needs Slurm; the syntax is checked",
    ("docs/design.md", " containers"): "a drawing",
    ("docs/folders.md", "resize-pos hf://org/vit --to 384 -o vit-384 --push"): (
        "uploads to the hub; the tests of --push use a server of their own"
    ),
}


def documents() -> list[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("sample_checkpoints/*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def recipes() -> dict[tuple[str, str], tuple[str, ...]]:
    """Read which documents test_recipes.py runs, without importing the libraries that it needs."""
    tree = ast.parse((ROOT / "tests/docs/test_recipes.py").read_text(encoding="utf-8"))
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RECIPES"
    )
    assert isinstance(table, ast.Dict)
    names = [str(key.value) for key in table.keys if isinstance(key, ast.Constant)]
    pairs = [(f"docs/{name}", language) for name in names for language in ("console", "python")]
    return dict.fromkeys(pairs, (RECIPES,))


def excused(document: str, block: str) -> str | None:
    for (name, begin), _ in NOT_RUN.items():
        if name == document and block.removeprefix("$ ").startswith(begin.removeprefix("$ ")):
            return begin
    return None


@pytest.mark.parametrize("document", documents())
def test_every_block_is_run_or_has_a_reason(document: str) -> None:
    runners = recipes() | RUN_BY
    for language, block in FENCE.findall((ROOT / document).read_text(encoding="utf-8")):
        if language in CODE and excused(document, block.lstrip("\n")) is None:
            assert (document, language) in runners, f"no test runs:\n{block}"


def test_every_runner_exists_and_every_entry_is_needed() -> None:
    seen = Counter(
        (document, language)
        for document in documents()
        for language, _ in FENCE.findall((ROOT / document).read_text(encoding="utf-8"))
    )
    for pair, tests in RUN_BY.items():
        assert seen[pair], f"{pair}: there is no such block"
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test
    used = {
        (document, excused(document, block))
        for document in documents()
        for _, block in FENCE.findall((ROOT / document).read_text(encoding="utf-8"))
    }
    assert set(NOT_RUN) <= used
