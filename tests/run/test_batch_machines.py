"""One zoo in a store and several processes: workers of Dask, two batches at once, and kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.run.test_batch_dask import await_words, start
from tests.support.bucket import Buckets
from tests.support.builders import vit, write_safetensors
from tests.support.folder_builders import files

pytest.importorskip("boto3")

TO = "96x128"


def command(buckets: Buckets, *more: str) -> list[str]:
    words = [f"s3://{buckets.source}/", "--to", TO, "-o", f"s3://{buckets.target}/", "--json"]
    return [sys.executable, "-m", "resize_pos", "batch", *words, *more]


def begin(buckets: Buckets, *more: str, endpoint: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})}
    return subprocess.Popen(
        command(buckets, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def told(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def undisturbed(folder: Path) -> dict[str, bytes]:
    """Return what the same batch writes on this disk."""
    words = ["zoo", "--to", TO, "-o", "here", "-q"]
    subprocess.run([sys.executable, "-m", "resize_pos", "batch", *words], check=True, cwd=folder)
    found = files(folder / "here")
    return {name: data for name, data in found.items() if not name.startswith(".resize-pos")}


def test_two_batches_at_once_convert_everything_once(
    buckets: Buckets, stored_zoo: Path, tmp_path: Path
) -> None:
    both = [begin(buckets, "-j", "1") for _ in range(2)]
    ended = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    statuses = Counter(line["status"] for out, _ in ended for line in told(out))
    assert statuses == {"resized": 4, "current": 4}
    assert buckets.outputs() == undisturbed(tmp_path)
    assert not buckets.claims() and not buckets.uploads


@pytest.mark.slow
def test_workers_of_dask_need_no_shared_disk(
    buckets: Buckets, stored_zoo: Path, tmp_path: Path
) -> None:
    """Their credentials come from their own environment; the coordinator sends none."""
    pytest.importorskip("distributed")
    wanted = undisturbed(tmp_path)
    with ExitStack() as stack:
        home = tmp_path / "elsewhere"
        home.mkdir()
        local = ("--host", "127.0.0.1", "--no-dashboard")
        scheduler = start(stack, home, "scheduler", "--port", "0", "--idle-timeout", "300s", *local)
        address = await_words(scheduler, "Scheduler at:").split()[-1]
        words = ("worker", address, "--nthreads", "1", "--no-nanny", "--death-timeout", "60s")
        for worker in [start(stack, home, *words, *local) for _ in range(2)]:
            await_words(worker, "Registered to:")
        process = begin(buckets, "--dask", address, "--report", "zoo.json")
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(line["status"] for line in told(out)) == {"resized": 4}
    assert buckets.outputs() == wanted
    assert not buckets.claims()
    total = json.loads(Path("zoo.json").read_text())["traffic"]
    assert total["requests"] > sum(line["traffic"]["requests"] for line in told(out)) > 20


def test_a_task_holds_no_credentials(
    buckets: Buckets, stored_zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    from resize_pos.cli.app import main
    from resize_pos.containers.io.remote_path import place
    from resize_pos.core.errors import UsageError
    from resize_pos.run.batch import run, work

    sent: list[bytes] = []

    def record(task: work.Task) -> work.Outcome:
        sent.append(pickle.dumps(task))
        return work.failed(task, "not now.", None)

    monkeypatch.setattr("resize_pos.run.batch.schedule.carry_out", record)
    with pytest.raises(SystemExit):
        main(["batch", *command(buckets)[4:], "-j", "1"])
    assert len(sent) == 4
    for data in sent:
        assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in data
        assert os.environ["AWS_ACCESS_KEY_ID"].encode() not in data
    task: work.Task = pickle.loads(sent[0])
    signed = place("https://x/vit.safetensors?X-Amz-Signature=very-secret")
    job = replace(task.job, source=signed)
    with pytest.raises(UsageError, match="is not sent to a cluster") as refused:
        run.require_no_secrets([replace(task, job=job)])
    assert "very-secret" not in refused.value.message


def big_zoo(buckets: Buckets, folder: Path, count: int) -> None:
    """Make files that are long enough to be uploaded in parts."""
    folder.mkdir()
    for number in range(count):
        rng = np.random.default_rng(number)
        more = {"head.weight": rng.integers(0, 255, 6 << 20, np.uint8)}
        write_safetensors(folder / f"m{number}.safetensors", vit() | more, {"format": "pt"})
    buckets.put_tree(folder)


@pytest.mark.slow
def test_an_interrupt_says_how_far_it_came_and_leaves_nothing(
    buckets: Buckets, tmp_path: Path
) -> None:
    big_zoo(buckets, tmp_path / "zoo", 6)
    process = begin(buckets, "-j", "2")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "of 6 finished, and their outputs are complete; run it again to continue" in err
    assert not buckets.claims() and not buckets.uploads
    process = begin(buckets, "-j", "1")
    out, _ = process.communicate()
    assert set(Counter(line["status"] for line in told(out))) == {"resized", "current"}
    assert buckets.outputs() == undisturbed(tmp_path)


def killed_at_random(buckets: Buckets, folder: Path, times: int, seed: int) -> None:
    """Kill a batch after a random number of its lines, then let one finish."""
    big_zoo(buckets, folder / "zoo", 4)
    wanted = undisturbed(folder)
    chance = random.Random(seed)
    for _ in range(times):
        process = begin(buckets, "-j", "2")
        assert process.stdout is not None
        try:
            process.wait(chance.uniform(0.5, 4.0))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert buckets.outputs().items() <= wanted.items()
    process = begin(buckets, "-j", "1")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert {line["status"] for line in told(out)} <= {"resized", "current"}
    assert buckets.outputs() == wanted
    assert not buckets.claims() and not buckets.uploads
    ledger = buckets.everything()[".resize-pos-batch/ledger.jsonl"].decode().splitlines()
    assert {json.loads(line)["target"] for line in ledger} == set(wanted)


@pytest.mark.slow
def test_a_killed_batch_is_finished_by_the_next(buckets: Buckets, tmp_path: Path) -> None:
    killed_at_random(buckets, tmp_path, times=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_batch_that_is_killed_again_and_again_is_finished(
    buckets: Buckets, tmp_path: Path, seed: int
) -> None:
    killed_at_random(buckets, tmp_path, times=4, seed=seed)
