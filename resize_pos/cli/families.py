"""`resize-pos families`: the registry, with provenance."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from resize_pos.cli.options import DEBUG_OPTION, JSON_OPTION
from resize_pos.cli.terminal import say_json, say_page
from resize_pos.core.errors import UsageError
from resize_pos.families.family import Family
from resize_pos.families.registry import known_families


@click.command("families")
@JSON_OPTION
@click.option("--markdown", is_flag=True, help="Print the page docs/families.md.")
@DEBUG_OPTION
def command(as_json: bool, markdown: bool) -> None:
    """List every layout that is known, with where it was read.

    \b
      resize-pos families
    """
    if as_json and markdown:
        raise UsageError("--json and --markdown exclude each other.")
    if markdown:
        from resize_pos.report.families_page import families_markdown

        say_page(families_markdown(known_families()))
        return
    if as_json:
        say_json([_document(f) for f in known_families()])
        return
    from resize_pos.cli.render import show_families

    show_families(known_families())


def _document(family: Family) -> dict[str, Any]:
    document = asdict(family)
    document["axes"] = [str(axes) for axes in family.axes]
    document["convention"] = None if family.convention is None else family.convention.name
    for rows in ("prefix", "suffix"):
        owners = getattr(family, rows)
        document[rows] = [" + ".join(owner.siblings) or owner.count for owner in owners]
    return document
