"""The arrows of the house: who may import whom, and what must not be imported at all."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "resize_pos"

ROW = re.compile(r"^\| `(\w+)` \|", re.M)


def house() -> dict[str, int]:
    """Read the packages from the table in docs/design.md; each may import from rows above it."""
    text = (PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.split("## The house", 1)[1]
    return {name: level for level, name in enumerate(["_version", *ROW.findall(table)])}


LEVEL = house()
HEAVY = {
    "torch",
    "timm",
    "jinja2",
    "distributed",
    "dask",
    "transformers",
    "open_clip",
    "huggingface_hub",
    "onnx",
}


def modules() -> list[Path]:
    skipped = {"__init__.py", "__main__.py"}
    return [p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.name not in skipped]


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_the_document_lists_every_package() -> None:
    assert {owner(path) for path in modules()} == set(LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_point_up(path: Path) -> None:
    assert owner(path) in LEVEL, f"{path.name} has no place in the house"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "resize_pos" or len(parts) == 1:
            continue
        assert LEVEL[parts[1]] <= LEVEL[owner(path)], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_command_line_knows_click_and_rich(path: Path) -> None:
    if owner(path) != "cli":
        assert not {name.split(".")[0] for name in imported(path)} & {"click", "rich"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_heavy_is_imported_at_the_top(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path, top_level_only=True)} & HEAVY


def loaded_after(*words: str) -> set[str]:
    """Run the command line in a fresh interpreter and list what it imported."""
    script = (
        "import json, sys\n"
        "from resize_pos.cli.app import _run\n"
        "code = _run(sys.argv[1:], debug=True)\n"
        "print('\\n' + json.dumps([code, sorted(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    code, names = json.loads(done.stdout.rsplit("\n", 2)[-2])
    assert code == 0, done.stderr
    return set(names)


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["--help"], False),
        (["inspect"], True),
        (["inspect", "--from", "64"], False),
        (["-n", "--to", "384"], True),
        (["-n", "--to", "384", "--from", "64"], False),
    ],
)
def test_a_look_imports_neither_torch_nor_numpy(
    words: list[str], config: bool, vit_file: Path
) -> None:
    """A size that a flag or a config states settles the grid together with the patch kernel."""
    if config:
        (vit_file.parent / "config.json").write_text('{"image_size": 64}')
    names = loaded_after(*words, *([] if words == ["--help"] else [str(vit_file)]))
    assert not names & (HEAVY | {"numpy", "ml_dtypes", "safetensors"})


@pytest.mark.parametrize("words", [["inspect"], ["-n", "--to", "384"]])
def test_a_look_compares_an_assumed_square_with_the_values(
    words: list[str], vit_file: Path
) -> None:
    """Nothing but the row count speaks for 4×4: the values are read, for which numpy is needed."""
    names = loaded_after(*words, str(vit_file))
    assert "numpy" in names and not names & (HEAVY | {"numpy.ma", "safetensors"})


def test_a_conversion_on_the_cpu_imports_neither_torch_nor_timm(vit_file: Path) -> None:
    names = loaded_after(str(vit_file), "--to", "384")
    assert "numpy" in names
    # Masked arrays would be a tenth of what a small conversion takes; np.median wants them.
    assert not names & (HEAVY | {"numpy.ma"})
    # The safetensors library reads the header of the output; its bindings for torch do not load.
    assert {name for name in names if name.startswith("safetensors")} == {
        "safetensors",
        "safetensors._safetensors_rust",
    }
