"""Batches on S3: SeaweedFS enforces the conditions with which several machines write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resize_pos.cli.app import main
from resize_pos.containers.remote import store
from resize_pos.run.batch import store_claims, store_run
from tests.support.bucket import LEDGER, Buckets
from tests.support.builders import vit, write_safetensors
from tests.support.faulty_proxy import FaultyProxy, faulty
from tests.support.folder_builders import files
from tests.support.object_stores import ObjectServer
from tests.support.range_server import serving

pytest.importorskip("boto3")

TO = "96x128"


@pytest.fixture
def proxy(
    buckets: Buckets, store_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyProxy]:
    with faulty(store_server.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        store.disconnect()
        yield running


class Done:
    """How a batch ended."""

    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.jobs = {line["source"].rpartition("/")[2]: line for line in told if "source" in line}
        self.counts = Counter(line["status"] for line in self.jobs.values())


Batch = Callable[..., Done]


@pytest.fixture
def batch(buckets: Buckets, capfd: pytest.CaptureFixture[str]) -> Batch:
    def run(*words: str) -> Done:
        given = list(words)
        if "-o" not in words:
            given = [f"s3://{buckets.source}/", *given, "-o", f"s3://{buckets.target}/"]
        code: Any = 0
        try:
            main(["batch", *given, "--to", TO, "-j", "1", "--json"])
        except SystemExit as ended:
            code = ended.code
        return Done(code, *capfd.readouterr())

    return run


def expected(stored_zoo: Path, batch: Batch) -> dict[str, bytes]:
    """Return what the same batch writes on this disk."""
    batch("zoo", "-o", "here")
    found = files(stored_zoo.parent / "here")
    return {name: data for name, data in found.items() if not name.startswith(".resize-pos")}


def test_a_zoo_in_a_store_becomes_what_a_local_one_becomes(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    first = batch()
    assert first.code == 0, first.err
    assert first.counts == {"resized": 4}
    assert buckets.outputs() == expected(stored_zoo, batch)
    assert not buckets.uploads and not buckets.claims()
    again = batch("--report", "zoo.json")
    assert again.counts == {"current": 4}
    verdicts = {name: line["verdict"] for name, line in first.jobs.items()}
    assert {name: line["verdict"] for name, line in again.jobs.items()} == verdicts
    # A second run lists both folders and reads the ledger, nothing else.
    assert json.loads(Path("zoo.json").read_text())["traffic"]["requests"] == 3


def test_between_a_store_and_this_disk(buckets: Buckets, stored_zoo: Path, batch: Batch) -> None:
    remote = f"s3://{buckets.target}/"
    down = (f"s3://{buckets.source}/", "-o", "down")
    up = ("zoo", "-o", remote)
    wanted = expected(stored_zoo, batch)
    for run in (up, down):
        assert batch(*run).counts == {"resized": 4}
        assert batch(*run).counts == {"current": 4}
    written = {
        n: d for n, d in files(stored_zoo.parent / "down").items() if not n.startswith(".res")
    }
    assert buckets.outputs() == written == wanted


def test_only_what_changed_is_converted_again(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    batch()
    values = vit(4, 4, channels=8)
    values["norm.bias"] = values["norm.bias"] + 1
    changed = write_safetensors(stored_zoo / "a.safetensors", values, {"format": "pt"})
    buckets.put("a.safetensors", changed.read_bytes())
    done = batch()
    assert done.jobs["a.safetensors"]["status"] == "resized"
    assert done.counts == {"resized": 1, "current": 3}
    assert buckets.outputs() == expected(stored_zoo, batch)
    assert batch().counts == {"current": 4}


def test_a_foreign_target_is_kept_and_replaced_on_request(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    foreign = write_safetensors(stored_zoo.parent / "f.safetensors", vit(2, 3), {}).read_bytes()
    buckets.put("a.safetensors", foreign, buckets.target)
    done = batch()
    assert done.counts == {"resized": 3, "failed": 1}
    assert "already exists" in done.jobs["a.safetensors"]["error"]
    assert buckets.outputs()["a.safetensors"] == foreign
    assert not buckets.claims()
    assert batch("--force").counts == {"resized": 1, "current": 3}
    assert buckets.outputs() == expected(stored_zoo, batch)


def test_another_request_does_not_replace_the_first(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    batch()
    before = buckets.outputs()
    done = batch("--method", "bilinear")
    assert done.counts == {"failed": 4}
    assert "another request" in done.jobs["a.safetensors"]["error"]
    assert buckets.outputs() == before


def test_without_its_ledger_a_zoo_is_converted_to_the_same_bytes(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    plain = write_safetensors(
        stored_zoo / "plain.safetensors", {"conv.weight": vit()["norm.bias"]}, {}
    )
    buckets.put("plain.safetensors", plain.read_bytes())
    batch()
    before = buckets.outputs()
    for key in buckets.everything():
        if key.startswith(LEDGER):
            buckets.delete(key)
    done = batch()
    assert done.jobs["a.safetensors"]["status"] == "resized"  # its record names the request
    assert done.jobs["plain.safetensors"]["status"] == "current"  # the bytes are the same
    assert "in one step" in done.jobs["model"]["hint"]
    assert buckets.outputs() == before


def test_a_dry_run_writes_nothing_and_reads_each_checkpoint_once(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    done = batch("-n", "--report", "plan.json")
    assert done.counts == {"planned": 4}
    assert not buckets.everything()
    assert done.jobs["b.safetensors"]["traffic"]["requests"] == 1
    batch()
    assert batch("-n").counts == {"current": 4}


def test_names_that_are_no_paths_are_left_out(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    from resize_pos.containers.remote.s3_store import S3Store
    from resize_pos.containers.remote.store import ObjectInfo

    names = ["../out.safetensors", "a//b.safetensors", "./c.safetensors", "sub/b.safetensors"]

    def walk(self: object, path: object) -> Iterator[tuple[str, ObjectInfo]]:
        return ((name, ObjectInfo(10, '"x"')) for name in names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Store, "walk", walk)
        done = batch(f"s3://{buckets.source}/", "-o", "down", "-n")
    assert list(done.jobs) == ["b.safetensors"]
    assert done.err.count("its name is not a path") == 3


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.safetensors", {"a", "b", "c", "model"}),
        ("sub/*.safetensors", {"b", "c"}),
        ("sub/[b].safetensors", {"b"}),
        ("s*", {"b", "c"}),
        ("sub/b.safetensors", {"b"}),
        ("model", {"model"}),
    ],
)
def test_globs_and_names(
    pattern: str, found: set[str], buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    there = batch(f"s3://{buckets.source}/{pattern}", "-o", "out", "-n")
    here = batch(f"zoo/{pattern}", "-o", "out", "-n")
    assert {name.removesuffix(".safetensors") for name in there.jobs} == found
    for name, line in here.jobs.items():
        assert there.jobs[name]["output"] == line["output"]


def test_a_manifest_names_urls_and_signatures_are_never_written(
    buckets: Buckets, stored_zoo: Path, batch: Batch
) -> None:
    with serving(stored_zoo) as web:
        rows = [
            {"source": f"{web.url}/a.safetensors?X-Amz-Signature=very-secret", "output": "w/"},
            {"source": f"s3://{buckets.source}/sub/", "output": "s/"},
            {"source": "zoo/a.safetensors", "output": "local.safetensors"},
        ]
        Path("jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ("--manifest", "jobs.jsonl", "-o", f"s3://{buckets.target}/out")
        done = batch(*words, "--report", "r.json", "--report", "r.md", "--report", "r.html")
        assert done.code == 0, done.err
        again = batch(*words)
    assert again.counts == {"current": 3}  # two rows have the same name
    outputs = buckets.outputs()
    written = b"".join(buckets.everything().values()) + (done.out + done.err).encode()
    for path in ("r.json", "r.md", "r.html"):
        written += Path(path).read_bytes()
    assert b"very-secret" not in written and b"resize-pos-secret" not in written
    assert outputs["out/w/a.safetensors"] == outputs["out/local.safetensors"]
    assert sorted(key for key in outputs if LEDGER not in key) == [
        "out/local.safetensors",
        "out/s/b.safetensors",
        "out/s/c.safetensors",
        "out/w/a.safetensors",
    ]


def test_reports_have_the_totals(buckets: Buckets, stored_zoo: Path, batch: Batch) -> None:
    done = batch("--report", "r.json", "--report", "r.md", "--report", "r.html")
    total = json.loads(Path("r.json").read_text())["traffic"]
    jobs = [line["traffic"] for line in done.jobs.values()]
    assert total["requests"] > sum(job["requests"] for job in jobs) > 20
    assert total["sent"] > sum(job["sent"] for job in jobs) > 0
    for name in ("r.md", "r.html"):
        assert f"raffic: {total['requests']} requests" in Path(name).read_text()


def test_a_missing_bucket_is_named(batch: Batch, buckets: Buckets, stored_zoo: Path) -> None:
    done = batch("s3://no-such-bucket-here/", "-o", "out")
    assert done.code == 1
    assert "s3://no-such-bucket-here: there is no such bucket" in done.err


# Several machines.


def claim_of(buckets: Buckets, key: str, **more: Any) -> str:
    """Let another machine claim a job; an entry of it becomes a claim for the same request."""
    name = LEDGER + store_claims.entry_name(key)
    entry = json.loads(buckets.everything().get(name, b'{"order": {"request": {}}}'))
    claim = {"own": "x", "batch": "theirs", "writer": "deadbeef-1-1", "began": 0, "fresh": True}
    document = {**entry, "target": key, "done": False, "claim": claim | more}
    buckets.put(name, json.dumps(document).encode(), buckets.target)
    return name


def test_a_job_that_another_machine_is_at_is_waited_for(
    buckets: Buckets, stored_zoo: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = claim_of(buckets, "a.safetensors")
    waits: list[float] = []

    def give_up(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            buckets.delete(name)

    monkeypatch.setattr(store_run, "wait_for_others", give_up)
    assert batch().counts == {"resized": 4}
    assert len(waits) == 3 and waits == sorted(waits)
    assert buckets.outputs() == expected(stored_zoo, batch)


def test_a_claim_that_is_not_renewed_is_taken_over(
    buckets: Buckets, stored_zoo: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uploads are aborted, and half of its folder is removed."""
    batch()
    for key in ("a.safetensors", "model"):
        claim_of(buckets, key)
    for key in ("a.safetensors", "model/config.json"):
        buckets.delete(key)
    buckets.begin_upload("a.safetensors")
    monkeypatch.setattr(store_claims, "LEASE", -1.0)
    assert batch().counts == {"resized": 2, "current": 2}
    assert buckets.outputs() == expected(stored_zoo, batch)
    assert not buckets.uploads and not buckets.claims()


def test_a_claim_is_renewed_while_its_job_runs(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resize_pos.containers.io.remote_path import RemotePath, place
    from resize_pos.run.batch.ledger import PastJob

    monkeypatch.setattr(store_claims, "_RENEWED", 0.01)
    folder = place(f"s3://{buckets.target}")
    assert isinstance(folder, RemotePath)
    entry = PastJob("a", {"request": {}}, done=False)
    wish = store_claims.Wish(store_claims.entry_path(folder, "a"), entry, "b", True, None, False)
    claim = store_claims.take(wish)
    assert isinstance(claim, store_claims.Claim)
    before = buckets.everything()
    with claim.renewed():
        while buckets.everything() == before:
            pass
    assert claim.is_held()
    assert claim.finish(PastJob("a", {"request": {}}, done=True))
    assert not buckets.claims()


def test_the_joined_ledger_is_merged_when_another_machine_was_faster(
    buckets: Buckets, stored_zoo: Path, batch: Batch, proxy: FaultyProxy
) -> None:
    other = '{"target":"x","order":{"version":"1"},"done":true,"version":"\\"1\\""}\n'

    def intrude(number: int, method: str, path: str) -> None:
        if method == "PUT" and "ledger.jsonl" in path and not intruded:
            intruded.append(path)
            buckets.put(f"{LEDGER}ledger.jsonl", other.encode(), buckets.target)

    intruded: list[str] = []
    proxy.fault = intrude
    assert batch().counts == {"resized": 4}
    lines = buckets.everything()[f"{LEDGER}ledger.jsonl"].decode().splitlines()
    assert intruded and len(lines) == 5


# A store in trouble.


@pytest.mark.parametrize("fault", ["busy", "drop", "lost"])
def test_trouble_that_passes_is_overcome(
    fault: str, buckets: Buckets, stored_zoo: Path, batch: Batch, proxy: FaultyProxy
) -> None:
    wanted = expected(stored_zoo, batch)
    proxy.fault = lambda n, *_: fault if n % 3 == 0 else None
    done = batch()
    assert done.code == 0, done.err
    assert buckets.outputs() == wanted
    assert not buckets.claims() and not buckets.uploads
    assert batch().counts == {"current": 4}


def test_a_store_that_dies_half_way_leaves_whole_outputs(
    buckets: Buckets, stored_zoo: Path, batch: Batch, proxy: FaultyProxy
) -> None:
    wanted = expected(stored_zoo, batch)
    for last in (9, 14, 31):
        proxy.asked.clear()
        proxy.fault = lambda n, *_, last=last: "dead" if n > last else None
        assert batch().code == 1
        found = {key: data for key, data in buckets.outputs().items() if "model/" not in key}
        assert found.items() <= wanted.items()
        proxy.dead = False
    proxy.fault = lambda *_: None
    done = batch()
    assert done.code == 0, done.err
    assert buckets.outputs() == wanted
    assert not buckets.claims() and not buckets.uploads
