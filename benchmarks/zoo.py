"""Batch throughput against `cp -r`: many small files, and a few large ones."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import data
from benchmarks.measure import TOOL, interleaved, machine

SMALL = data.Shape("small", 192, 6)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks zoo", description=__doc__)
    parser.add_argument("--small", type=int, default=200, help="how many small files")
    parser.add_argument("--large", type=int, default=4, help="how many ViT-B files")
    parser.add_argument("--headers", type=int, default=1000, help="how many headers to dry-run")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(words)
    print(f"{machine()}\n\n| zoo | command | seconds | × cp -r |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        zoos = {
            f"{options.small} files of 11 MB": _zoo(folder / "small", SMALL, options.small),
            f"{options.large} files of 346 MB": _zoo(folder / "large", data.VIT_B, options.large),
        }
        out = folder / "out"
        for title, zoo in zoos.items():
            commands = {"cp -r": ["cp", "-r", str(zoo), str(out)]}
            for workers in (1, 2):
                commands[f"batch -j {workers}"] = [*_batch(zoo, out), "-j", str(workers)]
            for command, summary in (
                results := interleaved(commands, [out], options.repeats)
            ).items():
                ratio = summary.median / results["cp -r"].median
                print(f"| {title} | {command} | {summary.median:.2f} | {ratio:.2f} |")
        headers = _links(
            folder / "headers", zoos[f"{options.small} files of 11 MB"], options.headers
        )
        dry = interleaved({"dry run": [*_batch(headers, out), "-n"]}, [out], options.repeats)
        print(f"| {options.headers} headers | --dry-run | {dry['dry run'].median:.2f} | – |")


def _batch(zoo: Path, out: Path) -> list[str]:
    return [*TOOL, "batch", str(zoo), "--to", "384", "--output-dir", str(out)]


def _zoo(folder: Path, shape: data.Shape, count: int) -> Path:
    folder.mkdir()
    first = data.write_safetensors(folder / "0000.safetensors", shape)
    for index in range(1, count):
        (folder / f"{index:04d}.safetensors").write_bytes(first.read_bytes())
    print(f"made {count} files in {folder}", file=sys.stderr)
    return folder


def _links(folder: Path, zoo: Path, count: int) -> Path:
    folder.mkdir()
    files = sorted(zoo.iterdir())
    for index in range(count):
        os.link(files[index % len(files)], folder / f"{index:05d}.safetensors")
    return folder
