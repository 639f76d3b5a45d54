"""Whole commands against `cp` and against scripts; writes results.md, results.json, results.svg."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks import data
from benchmarks.measure import TOOL, Summary, in_child, interleaved, machine, remove, run
from benchmarks.plot import log_log

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio that must be reached, of medians taken in one run."""

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"| {self.what} | {sign} {self.limit:g} | {self.value:.3g} | {_tick(self.holds)} |"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the data lies [default: made anew]")
    parser.add_argument("--repeats", type=int, default=5)
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
    results = {}
    for name, commands, outputs, repeats in _cases(folder, options.small, options.repeats):
        print(f"{name} …", file=sys.stderr)
        for command in commands.values():  # warm the page cache and every import
            remove(outputs)
            run(command)
        results[name] = interleaved(commands, outputs, repeats)
    sizes = {name: _size(folder / name) for name in results}
    table = "\n".join(_table(results, sizes))
    bars = _bars(results, sizes)
    lines = [str(bar) for bar in bars]
    text = (
        f"# What a conversion costs\n\n{machine()}; {date.today()}; medians of "
        f"{options.repeats} interleaved runs, page cache warm. Made by `python -m benchmarks`.\n\n"
        "| what | bar | measured | |\n|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n\n"
        + table
        + "\n"
    )
    print(text)
    if not options.no_write:
        (HERE / "results.md").write_text(text, encoding="utf-8")
        document = {
            "machine": machine(),
            "sizes": sizes,
            "results": {
                name: {
                    tool: [asdict(cost) for cost in summary.runs] for tool, summary in row.items()
                }
                for name, row in results.items()
            },
        }
        (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (HERE / "results.svg").write_text(_plot(results, sizes), encoding="utf-8")
    if not all(bar.holds for bar in bars):
        raise SystemExit("a bar was not reached")


def _cases(
    folder: Path, small: bool, repeats: int
) -> list[tuple[str, dict[str, list[str]], list[Path], int]]:
    """Every file with the commands that compete on it."""
    out = folder / "out"
    vit_b = data.write_safetensors(folder / "vit_b.safetensors", data.VIT_B)
    plain, torch_out, folder_out = out.with_suffix(".safetensors"), out.with_suffix(".pth"), out
    cases = [
        (
            vit_b.name,
            _rivals(vit_b, plain)
            | {"script": _peer("safetensors", vit_b, plain)}
            | {"timm": _peer("timm", vit_b, plain)},
            [plain],
            repeats,
        )
    ]
    vit_b_torch = _made(data.write_torch, folder / "vit_b.pth", vit_b)
    cases.append(
        (
            vit_b_torch.name,
            _rivals(vit_b_torch, torch_out) | {"script": _peer("torch", vit_b_torch, torch_out)},
            [torch_out],
            repeats,
        )
    )
    hf = _made(_write_transformers, folder / "vit_b_hf")
    cases.append(
        (
            hf.name,
            _rivals(hf, folder_out) | {"transformers": _peer("transformers", hf, folder_out)},
            [folder_out],
            repeats,
        )
    )
    training = _made(data.write_training, folder / "vit_b_training.pth", vit_b)
    cases.append(
        (
            training.name,
            _rivals(training, torch_out) | {"script": _peer("torch", training, torch_out)},
            [torch_out],
            repeats,
        )
    )
    if small:
        return cases
    vit_l = data.write_safetensors(folder / "vit_l.safetensors", data.VIT_L)
    cases.append(
        (
            vit_l.name,
            _rivals(vit_l, plain) | {"script": _peer("safetensors", vit_l, plain)},
            [plain],
            repeats,
        )
    )
    vit_l_torch = _made(data.write_torch, folder / "vit_l.pth", vit_l)
    cases.append((vit_l_torch.name, _rivals(vit_l_torch, torch_out), [torch_out], repeats))
    shards = _made(data.write_shards, folder / "vit_l_shards", vit_l)
    cases.append((shards.name, _rivals(shards, folder_out), [folder_out], repeats))
    large = data.write_safetensors(folder / "vit_5gb.safetensors", data.VIT_5GB)
    cases.append((large.name, _rivals(large, plain), [plain], max(3, repeats // 2 + 1)))
    return cases


def _made(make: Callable[..., Path], target: Path, *sources: Path) -> Path:
    in_child(make, target, *sources)
    return target


def _rivals(source: Path, target: Path) -> dict[str, list[str]]:
    copy = ["cp", "-r", str(source), str(target)]
    convert = [*TOOL, str(source), "--to", "384", "-o", str(target)]
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


Results = Mapping[str, Mapping[str, Summary]]


def _bars(results: Results, sizes: Mapping[str, int]) -> list[Bar]:
    bars = []
    for name, limit in (
        ("vit_l.safetensors", 1.8),
        ("vit_l.pth", 2.0),
        ("vit_5gb.safetensors", 1.15),
    ):
        if name in results:
            row = results[name]
            ratio = row["resize-pos"].median / row["cp"].median
            bars.append(Bar(f"{name}, whole command over cp", ratio, limit))
    for name in ("vit_b.safetensors", "vit_b.pth"):
        row = results[name]
        ratio = row["script"].median / row["resize-pos"].median
        bars.append(Bar(f"{name}, script over whole command", ratio, 5, at_most=False))
    ours = {name: row["resize-pos"] for name, row in results.items()}
    bars.append(Bar("peak RSS in MB, any file", max(s.peak_rss for s in ours.values()) / 1e6, 80))
    beyond = max(
        (summary.written - sizes[name]) / sizes[name]
        for name, summary in ours.items()
        if "shards" not in name  # unchanged shards are linked, not written
    )
    bars.append(Bar("bytes written beyond the file's size, %", 100 * beyond, 1))
    dry = [row["dry run"].median for row in results.values()]
    bars.append(Bar("slowest dry run, s", max(dry), 0.25))
    bars.append(Bar("dry run, largest file over smallest", max(dry) / min(dry), 1.5))
    return bars


def _table(results: Results, sizes: Mapping[str, int]) -> list[str]:
    lines = [
        "| file | size | command | seconds | ± | × cp | peak RSS | read | written |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
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
    for name, row in results.items():
        if name.endswith(".safetensors"):
            for tool in ("cp", "resize-pos", "script"):
                if tool in row:
                    point = (sizes[name] / 1e6, row[tool].median)
                    series.setdefault(tool, []).append(point)
    return log_log(series, "checkpoint, MB", "seconds")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _tick(holds: bool) -> str:
    return "✓" if holds else "✗"
