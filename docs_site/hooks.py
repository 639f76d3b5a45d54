"""Pages of the site that are not files in docs/: the README and its neighbours, and the reference.

Links in docs/ are written for a reader of the repository. Here, those that leave docs/ become links
to the repository.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

import resize_pos
from resize_pos.cli.app import group

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/OWNER/resize-pos/blob/main"
PAGES = {"README.md": "index.md"} | {
    name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
COPIED = (".png", ".svg", ".json")


def on_config(config: Any) -> Any:
    """Add the documents that the navigation does not name, so that none is forgotten."""
    named = str(config["nav"])
    more = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    if more:
        config["nav"].append({"More": more})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that come from other places."""
    pages = {
        "reference/cli.md": cli_page(),
        "reference/api.md": api_page(),
        **{target: (ROOT / name).read_text("utf-8") for name, target in PAGES.items()},
    }
    if not any(file.src_uri == "recipes/index.md" for file in files):
        pages["recipes/index.md"] = recipes_page()
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links of the repository lead to pages of the site, or to the repository."""
    del config
    uri = page.file.src_uri
    from_root = {target: name for name, target in PAGES.items()}.get(uri)
    # Where the file lies in the repository; links in it are relative to that place.
    folder = "" if from_root is not None else posixpath.join("docs", posixpath.dirname(uri))

    def rewritten(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        place = posixpath.normpath(posixpath.join(folder, target))
        site = PAGES.get(place) or (
            place.removeprefix("docs/") if place.startswith("docs/") else ""
        )
        if site and (site in PAGES.values() or any(f.src_uri == site for f in files)):
            link = posixpath.relpath(site, posixpath.dirname(uri) or ".")
        else:
            link = f"{REPOSITORY}/{place}"
        return f"{before}{link}{anchor or ''}{after}"

    return LINK.sub(rewritten, markdown)


def recipes_page() -> str:
    """List the recipes by their titles."""
    lines = ["# Recipes", ""]
    for path in sorted((ROOT / "docs" / "recipes").glob("*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Write the help of every command, as click prints it."""
    lines = ["# Command line", ""]
    for name, text in helps():
        lines += [f"## `{name}`", "", "```text", text, "```", ""]
    return "\n".join(lines)


def helps() -> Iterator[tuple[str, str]]:
    """Return every command with its help."""
    context = click.Context(group, info_name="resize-pos", terminal_width=90)
    yield "resize-pos", group.get_help(context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            inner = click.Context(command, info_name=name, parent=context, terminal_width=90)
            yield f"resize-pos {name}", command.get_help(inner)


def api_page() -> str:
    """Write the signature and the docstring of everything that the package exports."""
    lines = ["# Python", ""]
    for name in resize_pos.__all__:
        found = getattr(resize_pos, name)
        if not callable(found):
            continue
        signature = "" if inspect.isclass(found) else str(inspect.signature(found))
        doc = inspect.getdoc(found) or ""
        lines += [f"## {name}", "", "```python", f"{name}{signature}", "```", ""]
        lines += ["```text", doc, "```", ""]
        if inspect.isclass(found):
            lines += list(_members(found))
    return "\n".join(lines)


def _members(found: type) -> Iterator[str]:
    for name, member in vars(found).items():
        doc = inspect.getdoc(member)
        if not name.startswith("_") and doc and isinstance(member, property):
            yield f"- `{name}`: {doc.splitlines()[0]}"
    yield ""
