"""The documentation builds as a site, with every warning as an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs").with_suffix("")
        assert (site / page / "index.html").is_file(), page


def test_the_reference_lists_every_command_and_function(site: Path) -> None:
    import resize_pos

    commands = (site / "reference/cli/index.html").read_text(encoding="utf-8")
    for name in ("resize", "batch", "inspect", "verify", "compare", "families"):
        assert f"resize-pos {name}" in commands
    assert "--to-grid" in commands
    functions = (site / "reference/api/index.html").read_text(encoding="utf-8")
    for name in resize_pos.__all__:
        assert name.startswith("_") or f'id="{name.lower()}"' in functions, name


def test_the_navigation_leads_to_every_guide_and_recipe(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert f'href="{path.stem}/"' in home, path.name
    recipes = (site / "recipes" / "index.html").read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "recipes").glob("*.md"):
        assert f'href="{path.stem}/"' in recipes, path.name
