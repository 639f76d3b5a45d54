"""Write docs/outside.md: what the tool makes of every recorded model.

`python -m tests.outside.table` runs all cases and writes the page; a test compares it case by case.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.outside.cases import Case, Outcome, cases, outcome

PAGE = Path(__file__).parents[2] / "docs" / "outside.md"
_TITLE = """# Models from outside libraries

Models of libraries that no family was written for. Each was built by its own library at two image
sizes; only names, shapes and dtypes are kept (`tests/outside/headers`). The tests fill the position
tables with values that vary smoothly over the true grid, run the command, and compare every shape
with the model that the library builds at the new size, and the values with the same field there.

- **right**: converted by the command as it stands.
- **unchanged**: rightly nothing to do.
- **hint**: refused, and converted rightly after the printed flags were pasted.
- **refused**: refused; nothing is written.
- **wrong**: converted wrongly. There must be none.

Two parts of the models were tried before anything was tuned for them. What was wrong then is a test
now.

- 93 models of 45 packages: 45 were right, 17 rightly unchanged, 17 right after a hint, 10 refused
  and 4 wrong.
- 90 models of 41 packages (the last part of `tests/outside/models.toml`): 52 were right, 5 rightly
  unchanged, 18 right after a hint, 11 refused and 4 wrong. In three of the 4, half a model was
  converted: the columns of a pair of tables, a causal mask and an index stayed as they were. The
  fourth is a generator that has other layers at another size.

Models that read a signal are built at two lengths instead of two sizes; `--from` and `--to` then
count steps of the signal. Before anything was tuned for them, `vit_1d` of vit-pytorch was converted
wrongly, as if it had patches of an image.

Some models that were tried are not in the table, because they are too large to keep: CodeFormer,
Twins and JumboViT.

Three more were tried in the second part and cannot be judged: cellpose's CPSAM at 384 px and an OCR
model of modelscope keep their table whatever the size, and ImageBind has one size.

Some packages import libraries that building a model does not need. They were replaced by empty
stand-ins: `[stand_ins]` in `tests/outside/models.toml` names those of the last part, and
`python -m tests.outside.record PACKAGE` uses them. Those of earlier parts are not named.

"""

# Why no command converts it, for every case that ends as `refused`.
WHY_REFUSED = {
    "bottleneck-transformer-pytorch:bottleneck_transformer_pytorch.BottleStack#1": (
        "relative offsets along rows and columns; only its own library says how its blocks read "
        "them"
    ),
    "dynamic-network-architectures:primus.Primus#1": (
        "the hint works with the user's depth: a volume needs --to DxHxW"
    ),
    "maest-infer:model.MAEST": (
        "at 312 frames its library makes a table with one row more than patches; the hint names "
        "the nearest lengths without such a row"
    ),
    "modelscope:swin.SwinTransformer": (
        "masks of a window model without its patch embedding; only its library knows the cells"
    ),
    "open-metric-learning:vision_transformer.VisionTransformer": (
        "a head that reads the features of all cells at once, so it must be trained again"
    ),
    "spandrel-extra-arches:SRFormer.SRFormer": (
        "masks between windows and their reduced cells; its library rebuilds them"
    ),
    "spandrel-extra-arches:femasr.SwinLayers": (
        "masks of a window model without its patch embedding; only its library knows the cells"
    ),
    "spandrel-extra-arches:MAT.FirstStage": (
        "a generator with a layer for each size; at another size it has other layers"
    ),
    "stable-worldmodel:module.Predictor": (
        "a causal mask over the cells of three frames; only its library computes it"
    ),
    "stable-worldmodel:module.CausalPredictor": (
        "a causal mask over the cells of three frames; only its library computes it"
    ),
    "taming-transformers:mingpt.GPT": (
        "a causal mask over latents in raster order; only its library computes it"
    ),
    "fightingcv:DAT.DAT": (
        "offsets of deformed points, and masks of windows; no family describes its layout"
    ),
    "fightingcv:MOATransformer.MOATransformer": (
        "offsets between windows; no family says how they follow the image"
    ),
    "fightingcv:CMT.CMT": "a bias for each pair of cells and reduced cells, of each stage",
    "linformer:linformer.Linformer": (
        "layers over the tokens of a model without an image; only its library knows its rows"
    ),
    "monai-generative:transformer.DecoderOnlyTransformer": (
        "a causal mask over latents in raster order; only its library computes it"
    ),
    "nvidia-physicsnemo:song_unet.SongUNetPosEmbd": (
        "the names of its tensors state sizes, so its library gives them other names at another "
        "size"
    ),
    "parti-pytorch:vit_vqgan.VitVQGanVAE": (
        "relative offsets of a kind that no family describes; only its library reads them"
    ),
    "spandrel:IPT.IPT": "a query that holds a number for each channel of each cell",
    "spandrel:DRCT.DRCT": (
        "masks of one image size beside tables of an unknown layout; its library rebuilds them"
    ),
    "lambda-networks:lambda_networks.LambdaLayer": (
        "relative offsets of a kind that no family describes; only its library reads them"
    ),
    "mmpretrain:vit_eva02.ViTEVA02": (
        "the header has no values, so the rotary angles are those of the tests, which no formula "
        "gives"
    ),
    "monai:vit.ViT#1": "the hint works with the user's depth: a volume needs --to DxHxW",
    "monai:vit.ViT#2": "the hint works with the user's depth: a volume needs --to DxHxW",
    "monai:unetr.UNETR#1": "the hint works with the user's depth: a volume needs --to DxHxW",
    "pyiqa:maniqa_swin.SwinTransformer": (
        "masks of a window model without its patch embedding; only its library knows the cells"
    ),
    "self-attention-cv:self_attention_cv.AxialAttentionBlock": (
        "relative offsets along rows and columns; only its own library says how its blocks read "
        "them"
    ),
    "self-attention-cv:bottleneck_transformer.BottleneckBlock": (
        "relative offsets along rows and columns; only its own library says how its blocks read "
        "them"
    ),
    "spandrel:SwinIR.SwinIR": (
        "at the new size its library stores no mask, because nothing is shifted; the hint says to "
        "remove the masks first"
    ),
    "spandrel:Swin2SR.Swin2SR": (
        "the header has no values, so the masks are those of the tests, which no formula gives"
    ),
    "spandrel:SwinIR.SwinIR#1": (
        "--from contradicts the windows of this file; the printed hint drops it"
    ),
    "torcheeg:vit.ViT": (
        "9 electrodes are not divided into 6 cells by any patch; the hint works with the user's "
        "--to-grid"
    ),
    "torchgeo:croma.CROMA": (
        "a bias for each pair of cells, computed by its library from the number of patches"
    ),
    "vformer:swin.SwinTransformer": (
        "masks of one image size beside tables of an unknown layout; its library rebuilds them"
    ),
    "vformer:swin.SwinTransformer#1": (
        "masks of one image size beside tables of an unknown layout; its library rebuilds them"
    ),
    "vformer:pyramid.PVTClassification": (
        "224 px are not divided into 10 cells by any patch; the hint works with the user's --patch"
    ),
    "vit-pytorch:levit.LeViT": (
        "distances looked up by a stored index of a kind that no family describes"
    ),
}
_REFUSED_TITLE = """
## Refused, and why

For each refused model: what would convert it, or why no command can.

| model | reason |
|---|---|
"""


def row(case: Case, end: Outcome) -> str:
    """Write one line of the table."""
    flags = shlex.join(end.flags).replace("|", "\\|")
    version = case.entry["version"]
    return f"| {case.package} {version} | {case.name.partition(':')[2]} | {end.kind} | `{flags}` |"


def page() -> str:
    """Run all cases."""
    lines, refused, counts = [], [], Counter[str]()
    packages = set()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            end = outcome(case, Path(folder))
            counts[end.kind] += 1
            packages.add(case.package)
            lines.append(row(case, end))
            if end.kind == "refused":
                refused.append(f"| {case.name} | {WHY_REFUSED[case.name]}. |")
    kinds = ("right", "unchanged", "hint", "refused", "wrong")
    told = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    total = f"{counts.total()} models of {len(packages)} packages: {told}.\n\n"
    head = "| package | model | outcome | flags |\n|---|---|---|---|\n"
    why = _REFUSED_TITLE + "\n".join(refused)
    return _TITLE + total + head + "\n".join(lines) + "\n" + why + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
