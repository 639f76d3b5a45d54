"""The table in docs/vlm.md: `python -m tests.vlm.page [NAME …]` runs families and writes it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from resize_pos.configs.keys import PLACES, PROCESSOR_KEYS, KeyKind
from resize_pos.configs.values import ConfigEdit
from tests.vlm.apart import APART, Apart
from tests.vlm.seen import FILES, Seen, keys, read, run
from tests.vlm.zoo import Vlm
from tests.vlm.zoo_more import ALL

_Place = tuple[str, tuple[str, ...]]  # a file, and the path of a key
PAGE = Path(__file__).parents[2] / "docs" / "vlm.md"
HEAD = (
    "| family | follows the size | follows the token count | stays | runs at the new size |\n"
    "|---|---|---|---|---|\n"
)
_TOKENS = {place.key for place in PLACES if place.kind is KeyKind.TOKENS}
_TOKENS |= {key for key, kind, _ in PROCESSOR_KEYS if kind is KeyKind.TOKENS}
_FOLLOW_TOKENS = {
    *_TOKENS,
    "num_position_embeddings",
    "num_patches",
    "pos_emb_height",
    "pos_emb_width",
    "input_size_patches",
}
_STAY = {*_TOKENS, "mm_tokens_per_image", "num_query_tokens", "video_seq_length", "max_num_patches"}


def row(family: Vlm, source: Path, seen: Seen, before: int) -> str:
    """Write the row of one family."""
    calls = [(advice.file, (advice.key,)) for advice in seen.report.config_advice]
    flags = " ".join([f"--to {family.to[0]}", *family.flags])
    result = f"{before} → {seen.tokens} tokens" if family.token else "runs"
    return _row(family.name, source, seen.edits, calls, f"`{flags}`: {result}")


def row_apart(model: Apart, source: Path) -> str:
    """Write the row of a model with a test of its own; that test sees what the last cell says."""
    from resize_pos.api import resize_checkpoint

    report = resize_checkpoint(source, dry_run=True, **model.options)
    edits = report.plan.config_edits
    return _row(model.name, source, edits, [], f"`{model.flags}`: {model.seen}")


def _row(
    name: str, source: Path, edits: Sequence[ConfigEdit], calls: Sequence[_Place], result: str
) -> str:
    places = [(edit.file, edit.path) for edit in edits]
    stay = [
        (file, path)
        for file in FILES
        if (source / file).exists()
        for path in keys(read(source, file))
        if path[-1] in _STAY and (file, path) not in places
    ]
    places += calls
    tokens = [place for place in places if _follows_tokens(place)]
    sizes = [place for place in places if not _follows_tokens(place)]
    cells = [name, _shown(sizes), _shown(tokens), _shown(stay), result]
    return "| " + " | ".join(cell or "–" for cell in cells) + " |"


def _follows_tokens(place: _Place) -> bool:
    key = place[1][-1]
    return key in _FOLLOW_TOKENS or key == "patch_size"  # Cohere's tokens per side


def _shown(places: Sequence[_Place]) -> str:
    by_file: dict[str, list[str]] = {}
    for file, path in places:
        by_file.setdefault(file.removesuffix(".json"), []).append(f"`{'.'.join(path)}`")
    return "; ".join(f"{file}: {', '.join(found)}" for file, found in by_file.items())


def rows_of(page: str) -> dict[str, str]:
    """Read the rows of a page, by family."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in lines[1:]}


def main(names: Sequence[str]) -> None:
    """Run every family, or the named ones, and write their rows anew."""
    import torch

    for name in ("nms", "qnms"):  # as tests/conftest.py: a torchvision beside a CPU build of torch
        arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{name}", arguments)
    from resize_pos.api import resize_checkpoint

    written = rows_of(PAGE.read_text(encoding="utf-8"))
    rows = []
    for family in ALL:
        if names and family.name not in names and family.name in written:
            rows.append(written[family.name])
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = family.save(Path(folder) / family.name)
            before, _ = run(family, source)
            output = Path(folder) / "new"
            report = resize_checkpoint(source, to=family.to[0], output=output, **family.options)
            call = {advice.key: advice.after for advice in report.config_advice}
            tokens, pixels = run(family, output, **call)
            rows.append(row(family, source, Seen(report, tokens, pixels), before))
            sys.stderr.write(rows[-1] + "\n")
    for model in APART:
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "old")
            rows.append(row_apart(model, Path(folder) / "old"))
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index(HEAD), text.rindex("|\n") + 2
    PAGE.write_text(text[:start] + HEAD + "\n".join(rows) + "\n" + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
