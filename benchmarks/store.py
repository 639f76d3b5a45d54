"""Conversions between objects on SeaweedFS: requests, bytes, memory and time.

`python -m benchmarks store` starts the server, measures, and prints the figures; with `--save` they
are written to store.json and into docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.measure import TOOL, machine
from tests.support.object_stores import ObjectServer, seaweed

RESULTS = Path(__file__).parent / "store.json"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- benchmarks/store.py: begin -->", "<!-- benchmarks/store.py: end -->"
BUCKET, SOURCE, TARGET = "zoo", "vit.safetensors", "vit-384.safetensors"
MB = 1_000_000

# What a user does without this: the same client library, the same server, and on the disk a
# conversion by this program, or by the script that people use today.
_RIVAL = f"""
import subprocess, sys, boto3
client, command = boto3.client("s3"), sys.argv[1:]
client.download_file("{BUCKET}", "{SOURCE}", "in.safetensors")
subprocess.run(command, check=True)
client.upload_file("out.safetensors", "{BUCKET}", "{TARGET}")
"""
_FILES = ("in.safetensors", "out.safetensors")
_ON_DISK = {
    "program": (*TOOL, _FILES[0], "--to", "384", "-q", "-o", _FILES[1]),
    "script": (sys.executable, "-m", "benchmarks.peers", "safetensors", *_FILES),
}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks store", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--objects", type=int, default=1000, help="how many objects to dry-run")
    parser.add_argument(
        "--convert-large", action="store_true", help="also convert the 5 GB, for its memory"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures, and update the docs")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server").mkdir()
        with seaweed(folder / "server", volumes=100) as server:
            os.environ.update(server.environment, XDG_CACHE_HOME=str(folder / "cache"))
            figures = measured(server, folder, options)
    for line in bars(figures):
        print(line)
    if options.save:
        RESULTS.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


def measured(server: ObjectServer, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    client = server.client()
    client.create_bucket(Bucket=BUCKET)
    local = data.write_safetensors(folder / SOURCE, data.VIT_B)
    client.upload_file(str(local), BUCKET, SOURCE)
    size = local.stat().st_size
    local.unlink()
    ours: list[dict[str, Any]] = []
    theirs: dict[str, list[float]] = {kind: [] for kind in _ON_DISK}
    for _ in range(options.repeats):
        client.delete_object(Bucket=BUCKET, Key=TARGET)
        ours.append(_run(f"s3://{BUCKET}/{SOURCE}", "--to", "384", "-o", f"s3://{BUCKET}/{TARGET}"))
        for kind, command in _ON_DISK.items():
            client.delete_object(Bucket=BUCKET, Key=TARGET)
            theirs[kind].append(_rival(folder, command))
        print(f"{ours[-1]}, download, resize, upload: {theirs} s", file=sys.stderr)
    best = min(ours, key=lambda one: one["seconds"])
    client.delete_object(Bucket=BUCKET, Key=TARGET)
    dry = _dry_run(client, folder, options.objects) if options.objects else None
    large = _assembled(client, size)
    inspected = _run("inspect", f"s3://{BUCKET}/large.safetensors")
    converted = None
    if options.convert_large:
        target = f"s3://{BUCKET}/large-384.safetensors"
        converted = _run(f"s3://{BUCKET}/large.safetensors", "--to", "384", "-o", target)
    return {
        "machine": machine(),
        "object": size,
        "convert": best,
        "download_resize_upload": {kind: min(seconds) for kind, seconds in theirs.items()},
        "large_object": large,
        "inspect_large": inspected,
        "convert_large": converted,
        "dry_run": dry,
    }


def _run(*words: str) -> dict[str, Any]:
    """Run the tool; return its time, its memory and its traffic."""
    started = time.perf_counter()
    child = subprocess.Popen([*TOOL, *words, "--json"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        document = json.loads(child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {document}")
    used = document["traffic"]
    return {
        "seconds": round(seconds, 2),
        "memory": usage.ru_maxrss * 1024,
        "requests": used["requests"],
        "received": used["received"],
        "sent": used["sent"],
        "copied": used["copied_by_the_store"],
    }


def _rival(folder: Path, on_disk: tuple[str, ...]) -> float:
    project = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, [project, os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", _RIVAL, *on_disk],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=scratch,
            env=os.environ | {"PYTHONPATH": paths},
        )
        return round(time.perf_counter() - started, 2)


def _dry_run(client: Any, folder: Path, count: int) -> dict[str, Any]:
    """Plan many small objects at once."""
    small = data.write_safetensors(folder / "small.safetensors", data.Shape("small", 64, 2))
    for bucket in ("many", "many-384"):
        client.create_bucket(Bucket=bucket)
    for number in range(count):
        client.put_object(Bucket="many", Key=f"{number:04d}.safetensors", Body=small.read_bytes())
    started = time.perf_counter()
    command = [*TOOL, "batch", "s3://many/", "--to", "384", "-o", "s3://many-384/", "-n", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    return {"objects": count, "seconds": round(seconds, 2)}


def _assembled(client: Any, size: int) -> int:
    """Make a checkpoint of 5 GB in the store, mostly of copies of the smaller one."""
    header, rest = data.safetensors_header(data.VIT_5GB)
    where = {"Bucket": BUCKET, "Key": "large.safetensors"}
    upload = client.create_multipart_upload(**where)["UploadId"]
    first = (
        header
        + client.get_object(Bucket=BUCKET, Key=SOURCE, Range="bytes=65536-8454143")["Body"].read()
    )
    answer = client.upload_part(**where, UploadId=upload, PartNumber=1, Body=first)
    parts = [{"PartNumber": 1, "ETag": answer["ETag"]}]
    left = rest - (len(first) - len(header))
    lengths: list[int] = []
    while left:
        length = min(left, size - 65536)
        if 0 < left - length < 8 << 20:
            length -= 8 << 20
        lengths.append(length)
        left -= length

    def copy(number: int) -> dict[str, Any]:
        done = client.upload_part_copy(
            **where,
            UploadId=upload,
            PartNumber=number + 2,
            CopySource={"Bucket": BUCKET, "Key": SOURCE},
            CopySourceRange=f"bytes=65536-{65536 + lengths[number] - 1}",
        )
        return {"PartNumber": number + 2, "ETag": done["CopyPartResult"]["ETag"]}

    with ThreadPoolExecutor(4) as pool:
        parts += pool.map(copy, range(len(lengths)))
    client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    return len(header) + rest


_RESIZE = {"program": "resize-pos", "script": "the usual script"}


def bars(figures: dict[str, Any]) -> list[str]:
    """Compare the figures with what was promised."""
    one, large, big = figures["convert"], figures["inspect_large"], figures["convert_large"]
    moved = one["received"] + one["sent"]
    allowed = 0.03 * figures["object"] + 10 * MB
    ratios = {
        kind: seconds / one["seconds"]
        for kind, seconds in figures["download_resize_upload"].items()
    }
    rows = [
        ("ViT-B: bytes moved", f"{moved / MB:.1f} MB", f"{allowed / MB:.1f} MB", moved <= allowed),
        ("ViT-B: requests", one["requests"], 12, one["requests"] <= 12),
        *(
            (f"times faster than download, {_RESIZE[kind]}, upload", f"{ratio:.1f}", 4, ratio >= 4)
            for kind, ratio in ratios.items()
        ),
        ("inspect of 5 GB: requests", large["requests"], 4, large["requests"] <= 4),
        (
            "inspect of 5 GB: bytes",
            f"{large['received'] / MB:.2f} MB",
            "1 MB",
            large["received"] <= MB,
        ),
        ("memory for ViT-B", f"{one['memory'] / MB:.0f} MB", "120 MB", one["memory"] <= 120 * MB),
    ]
    if big:
        memory = big["memory"]
        rows.append(("memory for 5 GB", f"{memory / MB:.0f} MB", "120 MB", memory <= 120 * MB))
    dry = figures["dry_run"]
    if dry:
        rate = dry["objects"] / dry["seconds"]
        rows.append(("dry run: objects a second", f"{rate:.0f}", 50, rate >= 50))
    lines = [
        f"| {name} | {value} | {bar} | {'yes' if holds else 'no'} |"
        for name, value, bar, holds in rows
    ]
    return ["| measured | value | bar | holds |", "|---|---|---|---|", *lines]


def updated(page: str, figures: dict[str, Any]) -> str:
    """Put the figures into the page, between their marks."""
    inside = f"{BEGIN}\n{cost_words(figures)}\n{END}"
    found = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not found.search(page):
        raise SystemExit(f"{PAGE.name} has no marks for the figures")
    return found.sub(lambda _: inside, page)


_ZOO, _TERABYTES = 100_000, 100
_LINK = 1.25e9  # bytes a second: a network of 10 Gbit/s
_SLOW_LINK = 1.25e8  # 1 Gbit/s


def _copies(length: float) -> int:
    return math.ceil(length / (1 << 28))


def cost_words(figures: dict[str, Any]) -> str:
    """Say what a zoo of 100,000 checkpoints with 100 TB costs, from the figures of one."""
    one = figures["convert"]
    parts = _copies(_TERABYTES * 1e12 / _ZOO) - _copies(one["copied"])
    requests = (one["requests"] + parts) * _ZOO
    moved = (one["received"] + one["sent"]) * _ZOO
    whole = 2 * _TERABYTES * 1e12
    ours, theirs = one["seconds"], figures["download_resize_upload"]["program"]
    rows = [
        ("requests", f"{requests / 1e6:.1f} million", "depends on the client"),
        ("bytes through your machines", f"{moved / 1e12:.1f} TB", f"{whole / 1e12:.0f} TB"),
        (
            "hours that a 10 Gbit/s link is full",
            f"{moved / _LINK / 3600:.1f}",
            f"{whole / _LINK / 3600:.0f}",
        ),
        ("seconds for one ViT-B, on one machine with its store", f"{ours:.1f}", f"{theirs:.1f}"),
        (
            "the same and the time of its bytes on 1 Gbit/s (computed)",
            f"{ours + (one['received'] + one['sent']) / _SLOW_LINK:.1f}",
            f"{theirs + 2 * figures['object'] / _SLOW_LINK:.1f}",
        ),
    ]
    moved_words = ", ".join(
        [
            f"{one['requests']} requests",
            f"{one['received'] / MB:.1f} MB received",
            f"{one['sent'] / MB:.1f} MB sent",
            f"{one['copied'] / MB:.0f} MB copied by the store",
        ]
    )
    lines = [
        f"Measured on {figures['machine']}, with SeaweedFS on the same machine, for one ViT-B of "
        f"{figures['object'] / MB:.0f} MB: {moved_words}. Only the first part, headers and tables "
        "move, whatever the size of the object. A copy of more than 256 MiB is made in several "
        "parts, each with a request.",
        "",
        "For 100,000 checkpoints with 100 TB:",
        "",
        "| | resize-pos, store to store | download, resize, upload |",
        "|---|---|---|",
        *(f"| {name} | {a} | {b} |" for name, a, b in rows),
        "",
        *bars(figures),
    ]
    return "\n".join(lines)
