"""What is declared once is declared in one place: formats, suffixes and dependencies."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from resize_pos.containers.detect import DISTRIBUTED_PIECE, FORMATS, WEIGHT_SUFFIXES, imported

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "resize_pos"
SUFFIX = re.compile(
    "|".join(rf"{re.escape(s)}\b" for s in (*WEIGHT_SUFFIXES, DISTRIBUTED_PIECE))
    + rf"|\\\.\([^)]*\b({'|'.join(s[1:] for s in WEIGHT_SUFFIXES)})\b"
)
MODULES = sorted(PACKAGE.rglob("*.py"))


def texts(path: Path) -> Iterator[str]:
    """Give every string of a module, without docstrings and texts that are shown to people."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(body[0].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.value


# Sentences for people: they name an example, and nothing is decided by them.
PROSE = re.compile(r"\w+ \w+|-o NAME\.")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_suffix_of_weights_stands_in_the_table_of_formats_only(path: Path) -> None:
    if path == PACKAGE / "containers" / "detect.py":
        return
    found = [text for text in texts(path) if SUFFIX.search(text) and not PROSE.search(text)]
    assert not found, "derive it from containers/detect.py"


def test_every_row_of_the_table_can_be_imported() -> None:
    for row in FORMATS:
        assert callable(imported(row.opener))
        if row.writer is not None:
            assert callable(imported(f"{row.writer}:write_tensors"))
            assert callable(imported(f"{row.writer}:require_dtypes"))
    assert len(set(WEIGHT_SUFFIXES)) == len(WEIGHT_SUFFIXES)


def third_party() -> set[str]:
    names = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add((node.module or "").partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"resize_pos", ""}


def test_dependencies_are_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What dask[distributed] installs, and all that is imported of it; and the onnx library.
    extras = {"distributed", "onnx"}
    assert project["optional-dependencies"]["onnx"][0].startswith("onnx>=")
    assert project["optional-dependencies"]["dask"][0].startswith("dask[distributed]")
    declared = {re.split(r"[\[>=]", word)[0] for word in project["dependencies"]} | extras
    used = third_party()
    assert declared <= used, "declared, and imported by nothing"
    # typing_extensions is for type checkers alone. torchvision and PIL come with timm, and only
    # checks with a model need them; markupsafe comes with jinja2, which returns its strings.
    along = {"typing_extensions", "torchvision", "PIL", "markupsafe"}
    # Whoever verifies against a model of these libraries has them.
    chosen = {"transformers", "open_clip"}
    # boto3 brings botocore and urllib3; fsspec comes with huggingface_hub. Only URLs need them.
    assert project["optional-dependencies"]["s3"][0].startswith("boto3")
    stores = {"boto3", "botocore", "urllib3", "fsspec"}
    assert used - declared <= along | chosen | stores
