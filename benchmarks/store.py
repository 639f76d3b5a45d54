"""Conversions between objects on SeaweedFS: requests, bytes, memory and time.

`python -m benchmarks store` starts the server, measures, and prints the figures; with `--save` they
are written to store.json and into docs/scale.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.measure import TOOL, environment, machine
from tests.support.object_stores import ObjectServer, program, seaweed

RESULTS = Path(__file__).parent / "store.json"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- benchmarks/store.py: begin -->", "<!-- benchmarks/store.py: end -->"
BUCKET, SOURCE, TARGET = "zoo", "vit.safetensors", "vit-384.safetensors"
MB = 1_000_000

# What a user does without this, on the same server: with the same client library and a conversion
# by this program or by the script that people use today; or with the command line of AWS and that
# script, if the command is installed (`pip install awscli`, best in an environment of its own).
_CLIENT = f"""
import subprocess, sys, boto3
client, command = boto3.client("s3"), sys.argv[1:]
client.download_file("{BUCKET}", "{SOURCE}", "in.safetensors")
subprocess.run(command, check=True)
client.upload_file("out.safetensors", "{BUCKET}", "{TARGET}")
"""
_FILES = ("in.safetensors", "out.safetensors")
_PROGRAM = (*TOOL, _FILES[0], "--to", "384", "-q", "-o", _FILES[1])
_SCRIPT = (sys.executable, "-m", "benchmarks.peers", "safetensors", *_FILES)
_NAMES = {
    "program": "download, resize-pos, upload",
    "script": "download, the usual script, upload",
    "aws": "`aws s3 cp`, the usual script, `aws s3 cp`",
}


def rivals() -> dict[str, list[Sequence[str]]]:
    """List what is compared, each as the commands of a user."""
    aws = program("aws")
    client = (sys.executable, "-c", _CLIENT)
    found: dict[str, list[Sequence[str]]] = {
        "program": [(*client, *_PROGRAM)],
        "script": [(*client, *_SCRIPT)],
    }
    if aws is not None:
        copy = (aws, "s3", "cp", "--only-show-errors")
        found["aws"] = [
            (*copy, f"s3://{BUCKET}/{SOURCE}", _FILES[0]),
            _SCRIPT,
            (*copy, _FILES[1], f"s3://{BUCKET}/{TARGET}"),
        ]
    return found


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks store", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--objects", type=int, default=1000, help="how many objects to dry-run")
    parser.add_argument(
        "--convert-large", action="store_true", help="also convert the 5 GB, for its memory"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures, and update the docs")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server").mkdir()
        # Volumes as large as they are by default: while small ones fill up, everybody waits.
        with seaweed(folder / "server", volumes=100, megabytes=30_000) as server:
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
    others = rivals()
    theirs: dict[str, list[dict[str, float]]] = {kind: [] for kind in others}
    alone: list[dict[str, float]] = []
    for _ in range(options.repeats):
        _settle(client, server)
        with _server_time(server) as used:
            ours.append(
                _run(f"s3://{BUCKET}/{SOURCE}", "--to", "384", "-o", f"s3://{BUCKET}/{TARGET}")
            )
        ours[-1] |= used
        print(ours[-1], file=sys.stderr)
        _settle(client, server)
        with _server_time(server) as used:
            alone.append(_copies_alone(client, size))
        alone[-1] |= used
        print(f"the copies alone: {alone[-1]}", file=sys.stderr)
        for kind, commands in others.items():
            _settle(client, server)
            with _server_time(server) as used:
                theirs[kind].append(_rival(folder, commands))
            theirs[kind][-1] |= used
            print(f"{_NAMES[kind]}: {theirs[kind][-1]}", file=sys.stderr)
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
        "copies_alone": min(alone, key=lambda one: one["seconds"]),
        "download_resize_upload": {
            kind: min(runs, key=lambda one: one["seconds"]) for kind, runs in theirs.items()
        },
        "large_object": large,
        "inspect_large": inspected,
        "convert_large": converted,
        "dry_run": dry,
    }


# A child's peak memory begins with its parent's, and this process holds an SDK and checkpoints. So
# a small process starts the program. It writes the seconds, CPU time, memory in kB and exit code.
_LAUNCHER = """
import os, sys, time
started = time.perf_counter()
_, status, used = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
seconds, cpu = time.perf_counter() - started, used.ru_utime + used.ru_stime
with open(sys.argv[1], "w") as file:
    print(seconds, cpu, used.ru_maxrss, os.waitstatus_to_exitcode(status), file=file)
"""


def _run(*words: str) -> dict[str, Any]:
    """Run the tool; return its time, its memory and its traffic."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(figures)]
        done = subprocess.run(
            [*launch, *TOOL, *words, "--json"],
            stdout=subprocess.PIPE,
            check=True,
            env=environment(),
        )
        seconds, cpu, memory, code = map(float, figures.read_text().split())
    document = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{' '.join(words)} failed: {document}")
    used = document["traffic"]
    return {
        "seconds": round(seconds, 2),
        "cpu": round(cpu, 2),
        "memory": int(memory) * 1024,
        "requests": used["requests"],
        "received": used["received"],
        "sent": used["sent"],
        "copied": used["copied_by_the_store"],
    }


def _rival(folder: Path, commands: Sequence[Sequence[str]]) -> dict[str, float]:
    """Run commands one after the other; return their time."""
    project = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, [project, os.environ.get("PYTHONPATH", "")]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        started = time.perf_counter()
        for command in commands:
            subprocess.run(
                command,
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=scratch,
                env=environment() | {"PYTHONPATH": paths},
            )
        seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2)}


@contextlib.contextmanager
def _server_time(server: ObjectServer) -> Iterator[dict[str, float]]:
    """Take the CPU time of the server: unlike seconds, it says little about what else runs."""

    def used() -> float:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    found: dict[str, float] = {}
    before = used()
    yield found
    found["server_cpu"] = round(used() - before, 2)


def _settle(client: Any, server: ObjectServer) -> None:
    """Delete the output of the run before, and wait until the server has nothing left to do."""
    client.delete_object(Bucket=BUCKET, Key=TARGET)
    for _ in range(40):
        with _server_time(server) as used:
            time.sleep(0.5)
        if used["server_cpu"] <= 0.02:
            break


def _copies_alone(client: Any, size: int) -> dict[str, float]:
    """Ask the store for the copies of a conversion, and for nothing else."""
    where = {"Bucket": BUCKET, "Key": TARGET}
    edges = [5 << 20, size // 2, size]
    upload = client.create_multipart_upload(**where)["UploadId"]

    def copy(number: int) -> None:
        client.upload_part_copy(
            **where,
            UploadId=upload,
            PartNumber=number + 1,
            CopySource={"Bucket": BUCKET, "Key": SOURCE},
            CopySourceRange=f"bytes={edges[number]}-{edges[number + 1] - 1}",
        )

    with ThreadPoolExecutor(2) as pool:
        started = time.perf_counter()
        list(pool.map(copy, range(2)))
        seconds = time.perf_counter() - started
    client.abort_multipart_upload(**where, UploadId=upload)
    return {"seconds": round(seconds, 2)}


def _dry_run(client: Any, folder: Path, count: int) -> dict[str, Any]:
    """Plan many small objects at once."""
    small = data.write_safetensors(folder / "small.safetensors", data.Shape("small", 64, 2))
    for bucket in ("many", "many-384"):
        client.create_bucket(Bucket=bucket)
    for number in range(count):
        client.put_object(Bucket="many", Key=f"{number:04d}.safetensors", Body=small.read_bytes())
    started = time.perf_counter()
    command = [*TOOL, "batch", "s3://many/", "--to", "384", "-o", "s3://many-384/", "-n", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
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


_MOST = 120 * MB  # bytes of memory, whatever the size of an object


def bars(figures: dict[str, Any]) -> list[str]:
    """Compare the figures with what was promised."""
    one, large, big = figures["convert"], figures["inspect_large"], figures["convert_large"]
    moved = one["received"] + one["sent"]
    allowed = 0.03 * figures["object"] + 10 * MB
    ratios = {
        kind: other["seconds"] / one["seconds"]
        for kind, other in figures["download_resize_upload"].items()
    }
    rows = [
        ("ViT-B: bytes moved", f"{moved / MB:.1f} MB", f"{allowed / MB:.1f} MB", moved <= allowed),
        ("ViT-B: requests", one["requests"], 12, one["requests"] <= 12),
        *(
            (f"times faster than {_NAMES[kind]}", f"{ratio:.1f}", 4, ratio >= 4)
            for kind, ratio in ratios.items()
        ),
        ("inspect of 5 GB: requests", large["requests"], 4, large["requests"] <= 4),
        (
            "inspect of 5 GB: bytes",
            f"{large['received'] / MB:.2f} MB",
            "1 MB",
            large["received"] <= MB,
        ),
    ]
    for what, used in (("ViT-B", one), ("5 GB", big), ("inspect of 5 GB", large)):
        if used:
            memory = used["memory"]
            rows.append((f"memory for {what}", f"{memory / MB:.0f} MB", "120 MB", memory <= _MOST))
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


def _copies_words(figures: dict[str, Any]) -> list[str]:
    """Say what no client can change."""
    alone, others = figures.get("copies_alone"), figures["download_resize_upload"]
    if alone is None:
        return []
    least = alone["seconds"]
    return [
        f"The store needs {least:.2f} s on these two cores for its own copies, asked for by a bare "
        f"client that does nothing else. A client that took no time would be "
        f"{others['program']['seconds'] / least:.1f} times faster than a download, resize-pos and "
        f"an upload."
    ]


def cost_words(figures: dict[str, Any]) -> str:
    """Say what a zoo of 100,000 checkpoints with 100 TB costs, from the figures of one."""
    one = figures["convert"]
    parts = _copies(_TERABYTES * 1e12 / _ZOO) - _copies(one["copied"])
    requests = (one["requests"] + parts) * _ZOO
    moved = (one["received"] + one["sent"]) * _ZOO
    whole = 2 * _TERABYTES * 1e12
    ours, theirs = one["seconds"], figures["download_resize_upload"]["program"]["seconds"]
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
        "",
        *_copies_words(figures),
    ]
    return "\n".join(lines)
