"""Whole commands against `cp` and against scripts; writes results.md, results.json, results.svg."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks import data
from benchmarks.measure import TOOL, Summary, forget, in_child, interleaved, machine, remove, run
from benchmarks.plot import log_log

HERE = Path(__file__).parent
SIZED = ("vit_b.safetensors", "vit_l.safetensors", "vit_5gb.safetensors")

COMPUTED = {
    "64×64×1280 → 128×128": ("large_grid.safetensors", "2048"),
    "5,000 relative tables": ("many_tables.safetensors", "384", "12"),
}

_LEFT_OUT = (
    "Memory and bytes beyond the file are those of whole models. The two files that are nothing "
    "but tables hold these in memory, and grow as they do."
)

PEERS = ("script", "timm", "transformers")

Results = Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True, slots=True)
class Bar:
    """A number that must be reached, of medians taken in one run."""

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that one run has seen."""

    results: Results
    computed: Mapping[str, float]  # seconds, by what was computed


@dataclass(frozen=True, slots=True)
class Case:
    """A file, and the commands that compete on it."""

    source: Path
    commands: Mapping[str, list[str]]
    output: Path


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the data lies [default: made anew]")
    parser.add_argument("--runs", type=int, default=1, help="how often to do everything")
    parser.add_argument("--repeats", type=int, default=5, help="of each command within a run")
    parser.add_argument("--small", action="store_true", help="ViT-B only: a quick look")
    parser.add_argument("--no-write", action="store_true", help="print, but keep the results files")
    options = parser.parse_args(words)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        _report(options.folder, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            _report(Path(folder), options)


def _report(folder: Path, options: argparse.Namespace) -> None:
    cases = list(_cases(folder, options.small))
    sizes = {case.source.name: _size(case.source) for case in cases}
    runs = [_measured(folder, cases, options.repeats) for _ in range(options.runs)]
    bars = [_bars(run, sizes) for run in runs]
    text = (
        f"# What a conversion costs\n\n{machine()}; {date.today()}. Medians of {options.repeats} "
        "interleaved repeats (three of scripts, timm and transformers, twice as many of the "
        "largest file), of all data only the file at hand in the page cache, nothing left to be "
        f"written. Made by `python -m benchmarks speed --runs {options.runs}`.\n\n"
        + "\n".join(_bar_table(bars))
        + f"\n\n{_LEFT_OUT}\n"
        + "\nThe last run in full; peak RSS in MB, bytes as the process asked for them:\n\n"
        + "\n".join(_table(runs[-1].results, sizes))
        + "\n"
    )
    print(text)
    if not options.no_write:
        (HERE / "results.md").write_text(text, encoding="utf-8")
        document = {"machine": machine(), "sizes": sizes, "runs": [_document(r) for r in runs]}
        (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (HERE / "results.svg").write_text(_plot(runs[-1].results, sizes), encoding="utf-8")
    if not all(bar.holds for run_bars in bars for bar in run_bars):
        raise SystemExit("a bar was not reached")


def _document(run: Run) -> dict[str, object]:
    costs = {
        name: {tool: [asdict(cost) for cost in summary.runs] for tool, summary in row.items()}
        for name, row in run.results.items()
    }
    return {"commands": costs, "computed": dict(run.computed)}


def _measured(folder: Path, cases: Sequence[Case], repeats: int) -> Run:
    results = {}
    for case in cases:
        print(f"{case.source.name} …", file=sys.stderr)
        for each in cases:  # with a full cache, copies of the largest file scatter twofold
            forget(each.source)
        for command in case.commands.values():  # warm the page cache and every import
            remove([case.output])
            run(command)
        turns = 2 * repeats if case.source.name == SIZED[-1] else repeats  # much memory, much noise
        results[case.source.name] = interleaved(case.commands, [case.output], turns, PEERS)
    looks = {
        case.source.name: case.commands["dry run"] for case in cases if case.source.name in SIZED
    }
    results["dry runs"] = interleaved(looks, [], repeats)
    computed = {
        what: statistics.median(_compute(folder / file, *to) for _ in range(repeats))
        for what, (file, *to) in COMPUTED.items()
    }
    return Run(results, computed)


def _compute(path: Path, *to: str) -> float:
    command = [sys.executable, "-m", "benchmarks.compute", str(path), *to]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def _cases(folder: Path, small: bool) -> Iterator[Case]:
    """Make every file in a process of its own: a child's peak memory begins with its parent's."""
    plain, pickled, tree = (folder / name for name in ("out.safetensors", "out.pth", "out"))
    vit_b = _made(data.write_safetensors, folder / "vit_b.safetensors", data.VIT_B)
    scripts = {"script": _peer("safetensors", vit_b, plain), "timm": _peer("timm", vit_b, plain)}
    looks = {"--help": [*TOOL, "--help"], "inspect": [*TOOL, "inspect", str(vit_b)]}
    yield Case(vit_b, _rivals(vit_b, plain) | scripts | looks, plain)
    vit_b_torch = _made(data.write_torch, folder / "vit_b.pth", vit_b)
    script = {"script": _peer("torch", vit_b_torch, pickled)}
    yield Case(vit_b_torch, _rivals(vit_b_torch, pickled) | script, pickled)
    hf = _made(_write_transformers, folder / "vit_b_hf")
    yield Case(hf, _rivals(hf, tree) | {"transformers": _peer("transformers", hf, tree)}, tree)
    training = _made(data.write_training, folder / "vit_b_training.pth", vit_b)
    script = {"script": _peer("torch", training, pickled)}
    yield Case(training, _rivals(training, pickled) | script, pickled)
    grid = _made(data.write_large_grid, folder / "large_grid.safetensors")
    yield Case(grid, _rivals(grid, plain, "--to", "2048"), plain)
    many = _made(data.write_many_tables, folder / "many_tables.safetensors")
    yield Case(many, _rivals(many, plain, "--to", "384", "--to-window", "12"), plain)
    if small:
        return
    vit_l = _made(data.write_safetensors, folder / "vit_l.safetensors", data.VIT_L)
    script = {"script": _peer("safetensors", vit_l, plain)}
    yield Case(vit_l, _rivals(vit_l, plain) | script, plain)
    vit_l_torch = _made(data.write_torch, folder / "vit_l.pth", vit_l)
    yield Case(vit_l_torch, _rivals(vit_l_torch, pickled), pickled)
    shards = _made(data.write_shards, folder / "vit_l_shards", vit_l)
    yield Case(shards, _rivals(shards, tree), tree)
    huge = _made(data.write_safetensors, folder / "vit_5gb.safetensors", data.VIT_5GB)
    yield Case(huge, _rivals(huge, plain), plain)


def _made(make: Callable[..., Path], target: Path, *sources: object) -> Path:
    in_child(make, target, *sources)
    return target


def _rivals(source: Path, target: Path, *to: str) -> dict[str, list[str]]:
    convert = [*TOOL, str(source), *(to or ("--to", "384")), "-o", str(target)]
    copy = ["cp", "-r", str(source), str(target)]
    return {"cp": copy, "resize-pos": convert, "dry run": [*convert, "-n"]}


def _peer(kind: str, source: Path, target: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers", kind, str(source), str(target)]


def _write_transformers(folder: Path) -> Path:
    if not folder.exists():
        from benchmarks.peers import declare_torchvision_operators

        declare_torchvision_operators()
        from transformers import ViTConfig, ViTModel

        ViTModel(ViTConfig()).save_pretrained(folder)
    return folder


def _bars(run: Run, sizes: Mapping[str, int]) -> list[Bar]:
    results = run.results
    medians = {
        name: {tool: summary.median for tool, summary in row.items()}
        for name, row in results.items()
    }
    limits = {"vit_l.safetensors": 1.8, "vit_l.pth": 2.0, "vit_5gb.safetensors": 1.15}
    bars = [
        Bar(f"{name}, whole command ÷ cp", row["resize-pos"] / row["cp"], limits[name])
        for name, row in medians.items()
        if name in limits
    ]
    for name in ("vit_b.safetensors", "vit_b.pth"):
        ratio = medians[name]["script"] / medians[name]["resize-pos"]
        bars.append(Bar(f"{name}, script ÷ whole command", ratio, 5, at_most=False))
    tables = {file for file, *_ in COMPUTED.values()}
    whole = {name: results[name]["resize-pos"] for name in sizes if name not in tables}
    peak = max(summary.peak_rss for summary in whole.values()) / 1e6
    bars.append(Bar("peak RSS of any model's conversion, MB", peak, 80))
    beyond = max(
        (summary.written - sizes[name]) / sizes[name]
        for name, summary in whole.items()
        if "shards" not in name  # unchanged shards are linked, not written
    )
    bars.append(Bar("bytes written beyond the file's size, %", 100 * beyond, 1))
    vit_b = medians["vit_b.safetensors"]
    for look in ("--help", "inspect", "dry run"):
        bars.append(Bar(f"`{look.replace('dry run', '--dry-run')}`, s", vit_b[look], 0.25))
    dry = medians["dry runs"]
    flat = dry[max(dry, key=lambda name: sizes[name])] / dry["vit_b.safetensors"]
    bars.append(Bar("dry run, largest file ÷ smallest", flat, 1.2))
    bars += [Bar(f"computing {what}, s", value, 1) for what, value in run.computed.items()]
    return bars


def _bar_table(runs: Sequence[Sequence[Bar]]) -> list[str]:
    heads = [f"run {number}" for number in range(1, len(runs) + 1)] if len(runs) > 1 else ["seen"]
    lines = [f"| what | bar | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for bars in zip(*runs, strict=True):
        sign = "≤" if bars[0].at_most else "≥"
        seen = " | ".join(f"{bar.value:.3g} {'✓' if bar.holds else '✗'}" for bar in bars)
        lines.append(f"| {bars[0].what} | {sign} {bars[0].limit:g} | {seen} |")
    return lines


def _table(results: Results, sizes: Mapping[str, int]) -> list[str]:
    lines = [
        "| file | size | command | seconds | ± | × cp | peak RSS | read | written |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sizes:
        row = results[name]
        for tool, summary in row.items():
            ratio = summary.median / row["cp"].median
            lines.append(
                f"| {name} | {sizes[name] / 1e6:,.0f} MB | {tool} | {summary.median:.3f} | "
                f"{summary.spread:.0%} | {ratio:.2f} | {summary.peak_rss / 1e6:,.0f} MB | "
                f"{summary.read / 1e6:,.0f} MB | {summary.written / 1e6:,.0f} MB |"
            )
    return lines


def _plot(results: Results, sizes: Mapping[str, int]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for name in SIZED:
        for tool in ("cp", "resize-pos", "script", "timm"):
            if tool in results.get(name, {}):
                point = (sizes[name] / 1e6, results[name][tool].median)
                series.setdefault(tool, []).append(point)
    return log_log(series, "checkpoint, MB", "seconds")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
