"""The registry of families as a Markdown document. docs/families.md is exactly this output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resize_pos.families.family import Family, Owner, Role

_SECTIONS: tuple[tuple[Role, str, str], ...] = (
    (Role.ABSOLUTE, "Absolute tables", "One vector per patch of the image, resized with it."),
    (
        Role.MIXING,
        "Layers over patches",
        "Fully connected layers over all patches. With R the resampling of the grid and R⁺ its "
        "pseudo-inverse, weights that read patches become W·R⁺, weights that write them R·W, and "
        "those that do both R·W·R⁺.",
    ),
    (
        Role.RELATIVE,
        "Relative tables",
        "One vector per offset between two patches, resampled in offset space.",
    ),
    (Role.SEQUENCE, "1-D tables", "One vector per token of a text; `--to-length` changes them."),
    (
        Role.REFERENCE,
        "Reference grids",
        "Resampled by the library while it runs, so left alone; `--reference-grids resize` "
        "changes them.",
    ),
    (
        Role.INDEX,
        "Raw-index tables",
        "Looked up by number, so never interpolated; `--to-rows N` extends or cuts them.",
    ),
    (Role.KERNEL, "Patch embeddings", "Changed by `--to-patch N` only."),
    (Role.INERT, "Left alone", "Tensors that sound like position tables and are none."),
)

_INTRODUCTION = """\
# Families

Every layout that is known, from `resize_pos/families/families.toml`. The command
`resize-pos families --markdown` prints this page. *Rows* are what may stand before and after the
grid, likeliest first. *Own convention* is how the family's own library resizes the table; `--like`
takes any of them.
"""


_REFUSALS = """\
## What is refused, and why

- **Two towers that see images of different sizes** (DeepSeek-VL hybrid: 1024 and 384 px). One
  `--to` cannot mean both; `--tower NAME` converts one of them, and a second run the other.
- **A relative table of an unknown model.** Whether its window follows the image is not in the
  file: 7×7 may be the window of a pyramid, or the whole image.
- **A window that differs between the sizes of one model** (Swin with an image smaller than its
  window). The file does not tell a small window from a large one that was cut; `--to-window N`
  does.
- **Sizes that a model cannot run**, such as a grid that does not hold whole windows (Hiera) or does
  not divide into blocks (NesT). The error names the nearest sizes.
- **Quantised and integer tables.** Their scales belong to rows that would no longer exist.
"""


def families_markdown(families: Sequence[Family]) -> str:
    """Describe a registry, role by role, in order of precedence."""
    parts = [_INTRODUCTION]
    named = {role for role, _, _ in _SECTIONS}
    others = sorted({family.role for family in families} - named)
    titles = [*_SECTIONS, *((role, role.value.capitalize(), "") for role in others)]
    for role, title, words in titles:
        members = [family for family in families if family.role is role]
        if members:
            parts.append(f"## {title}\n\n{words}\n\n{_table(members)}\n")
    return "\n".join([*parts, _REFUSALS])


def _table(families: Iterable[Family]) -> str:
    lines = [
        "| family | models | name | axes | rows | own convention | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for family in families:
        title = family.title
        if family.refuse:
            flag = "; `--force-interpolate` interpolates it anyway" if family.forcible else ""
            title += f". **Refused**: {family.refuse}{flag}"
        elif family.why:
            title += f". {family.why[0].upper()}{family.why[1:]}"
        cells = (
            family.name,
            title,
            f"`{family.key}`",
            "; ".join(f"`{axes}`" for axes in family.axes),
            _rows(family),
            "" if family.convention is None else family.convention.name,
            family.source,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return "\n".join(lines)


def _rows(family: Family) -> str:
    prefix, suffix = _owners(family.prefix), _owners(family.suffix)
    return "; ".join([prefix, *([f"after: {suffix}"] if suffix else [])]) if prefix else suffix


def _owners(owners: Sequence[Owner]) -> str:
    if all(owner == Owner(0, ()) for owner in owners):
        return ""
    return ", ".join(" + ".join(owner.siblings) or str(owner.count) for owner in owners)
