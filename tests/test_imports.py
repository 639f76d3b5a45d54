"""The arrows of the house: who may import whom, and what must not be imported at all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "resize_pos"

# Each row may import only from rows above it (and, where a row has several names, among them).
HOUSE: tuple[tuple[str, ...], ...] = (
    ("_version", "errors", "printable", "quick", "beside"),
    ("geometry", "json_text"),
    ("tensors", "layout", "conventions", "windows", "progression"),
    ("operations", "kernels"),
    ("transforms", "containers"),
    ("families", "config_places", "hub"),
    ("registry",),
    ("configs", "text_configs", "request", "tables"),
    ("infer", "patches", "recognition", "config_values"),
    ("smoothness",),
    ("rules", "config_processors"),
    ("locate", "config_edits"),
    ("plan",),
    ("measures", "provenance", "advice", "config_advice"),
    ("health", "pictures"),
    ("verdict", "execute", "sources"),
    ("diagnosis", "offset_origin", "recipes"),
    ("verification", "fit"),
    ("comparison", "timm_models"),
    ("probe",),
    ("report",),
    ("verify",),
    ("compute",),
    ("convert",),
    ("api", "batch"),
    ("cli",),
)
LEVEL = {name: level for level, row in enumerate(HOUSE) for name in row}
HEAVY = {
    "torch",
    "timm",
    "jinja2",
    "distributed",
    "dask",
    "transformers",
    "open_clip",
    "huggingface_hub",
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
        "from resize_pos.cli import _run\n"
        "code = _run(sys.argv[1:], debug=True)\n"
        "print('\\n' + json.dumps([code, sorted(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    code, names = json.loads(done.stdout.rsplit("\n", 2)[-2])
    assert code == 0, done.stderr
    return set(names)


@pytest.mark.parametrize("words", [["--help"], ["inspect"], ["-n", "--to", "384"]])
def test_a_look_imports_neither_torch_nor_numpy(words: list[str], vit_file: Path) -> None:
    names = loaded_after(*words, *([] if words == ["--help"] else [str(vit_file)]))
    assert not names & (HEAVY | {"numpy", "ml_dtypes", "safetensors"})


def test_a_conversion_on_the_cpu_imports_neither_torch_nor_timm(vit_file: Path) -> None:
    names = loaded_after(str(vit_file), "--to", "384")
    assert "numpy" in names
    # Masked arrays would be a tenth of what a small conversion takes; np.median wants them.
    assert not names & (HEAVY | {"safetensors", "numpy.ma"})
