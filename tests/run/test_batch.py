"""`resize-pos batch` as a contract: what is left alone, what is refused, codes and streams."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from resize_pos.cli.app import main
from resize_pos.containers.base import Container
from resize_pos.containers.detect import open_container
from resize_pos.containers.io import stage_names as stages
from resize_pos.report.report import Report
from resize_pos.run.batch import work
from resize_pos.run.batch.ledger import NAME, Ledger
from resize_pos.run.job import Job
from resize_pos.run.job import run as run_job
from tests.laws.test_imports import HEAVY, loaded_after
from tests.support.builders import raw_tensors, vit, write_safetensors
from tests.support.zoo import tree

WORDS = ("batch", "zoo", "--to", "96x128", "-o", "out", "-j", "1")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.splitlines()]
        return {Path(line["source"]).name: line for line in lines}

    @property
    def statuses(self) -> dict[str, str]:
        return {name: line["status"] for name, line in self.jobs.items()}


Run = Callable[..., Outcome]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command line where there is a folder `zoo` with two checkpoints."""
    monkeypatch.chdir(tmp_path)
    Path("zoo/sub").mkdir(parents=True)
    write_safetensors(Path("zoo/a.safetensors"), vit())
    write_safetensors(Path("zoo/sub/b.safetensors"), vit(channels=16))

    def call(*words: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert isinstance(caught.value.code, int)
        return Outcome(caught.value.code, captured.out, captured.err)

    return call


BOTH_CURRENT = {"a.safetensors": "current", "b.safetensors": "current"}
BOTH_RESIZED = {"a.safetensors": "resized", "b.safetensors": "resized"}


def test_the_result_goes_to_stdout_and_the_progress_to_stderr(run: Run) -> None:
    done = run(*WORDS)
    assert done.code == 0
    assert done.out.startswith("2 done, 0 failed")
    assert "[1/2] resized    zoo/sub/b.safetensors" in done.err  # the larger one first
    assert sorted(tree(Path("out"))) == ["a.safetensors", "sub/b.safetensors"]


def test_each_output_is_what_the_single_command_writes(run: Run) -> None:
    run(*WORDS)
    run("zoo/a.safetensors", "--to", "96x128", "-o", "one.safetensors")
    assert Path("one.safetensors").read_bytes() == Path("out/a.safetensors").read_bytes()


def test_a_second_run_opens_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*WORDS)
    monkeypatch.setattr("resize_pos.run.job.open_container", None)
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT


def test_a_stage_whose_writer_dies_during_the_run_is_removed_at_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*WORDS)
    left = Path("out/sub/.b.safetensors.resize-pos-part")  # of a run that was killed
    left.touch()
    lives = [True]
    monkeypatch.setattr(stages, "is_abandoned", lambda _: not (lives and lives.pop()))
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT
    assert not left.exists()


def test_a_file_that_was_only_touched_is_still_current(run: Run) -> None:
    run(*WORDS)
    before = tree(Path("out"))
    os.utime("zoo/a.safetensors", ns=(1, 1))
    moments = Path("out/a.safetensors").stat().st_mtime_ns
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT
    assert tree(Path("out")) == before
    assert Path("out/a.safetensors").stat().st_mtime_ns == moments


def test_a_source_with_other_weights_and_the_same_table_is_converted_again(run: Run) -> None:
    run(*WORDS)
    tensors = vit()
    tensors["blocks.0.attn.qkv.weight"] = tensors["blocks.0.attn.qkv.weight"] + 1
    write_safetensors(Path("zoo/a.safetensors"), tensors)
    again = run(*WORDS, "--json").statuses
    assert again == {"a.safetensors": "resized", "b.safetensors": "current"}
    entry, data = raw_tensors(Path("out/a.safetensors"))[0]["blocks.0.attn.qkv.weight"]
    assert data == tensors["blocks.0.attn.qkv.weight"].tobytes(), entry


def test_a_config_that_appears_beside_a_file_counts(run: Run) -> None:
    run(*WORDS[:-1], "1")
    Path("zoo/open_clip_config.json").write_text("{}")
    found = run("batch", "zoo/a.safetensors", *WORDS[2:], "--json")
    assert found.statuses == {"a.safetensors": "current"}  # looked at again, and the same


def test_another_request_does_not_overwrite_the_first(run: Run) -> None:
    run(*WORDS)
    before = tree(Path("out"))
    other = ("batch", "zoo", "--to", "64x96", "-o", "out", "-j", "1", "--json")
    refused = run(*other)
    assert refused.code == 1
    assert set(refused.statuses.values()) == {"failed"}
    assert "was made for another request (to 96x128)" in refused.jobs["a.safetensors"]["error"]
    assert "--force" in refused.jobs["a.safetensors"]["hint"]
    assert tree(Path("out")) == before
    planned = run(*other, "-n")
    assert planned.code == 0
    assert all(job["needs_force"] for job in planned.jobs.values())
    assert run(*other, "--force").statuses == BOTH_RESIZED
    assert run(*other).statuses == BOTH_CURRENT


def test_a_quiet_batch_names_the_path_of_what_failed(run: Run) -> None:
    Path("zoo/broken").mkdir()
    for name in ("broken/model.pth", "model.pth"):
        Path("zoo", name).write_bytes(b"\xff\xd8\xff\xe0 a picture")
    done = run(*WORDS, "-q")
    assert done.code == 1
    for line in ("zoo/broken/model.pth: this is a JPEG image", "zoo/model.pth: this is a JPEG"):
        assert f"error: {line}" in done.err
    assert sorted(done.out.split()) == ["out/a.safetensors", "out/sub/b.safetensors"]


def test_what_is_current_stays_even_with_force(run: Run) -> None:
    run(*WORDS)
    assert run(*WORDS, "--json", "--force").statuses == BOTH_CURRENT


@pytest.mark.parametrize("known", [False, True])
def test_somebody_elses_file_is_not_replaced(known: bool, run: Run) -> None:
    if known:  # once ours, then changed
        run(*WORDS)
    Path("out").mkdir(exist_ok=True)
    write_safetensors(Path("out/a.safetensors"), vit(2, 2))
    theirs = Path("out/a.safetensors").read_bytes()
    refused = run(*WORDS, "--json")
    assert refused.code == 1
    assert refused.statuses["a.safetensors"] == "failed"
    assert "already exists" in refused.jobs["a.safetensors"]["error"]
    planned = run(*WORDS, "--json", "-n")
    assert planned.code == 0
    assert planned.jobs["a.safetensors"]["needs_force"]
    assert "out/a.safetensors exists: --force would replace it" in run(*WORDS, "-n").err
    assert Path("out/a.safetensors").read_bytes() == theirs
    assert run(*WORDS, "--json", "--force").statuses["a.safetensors"] == "resized"


def test_without_the_ledger_equal_bytes_are_current(run: Run) -> None:
    write_safetensors(Path("zoo/at_target.safetensors"), {"pos_embed": vit()["pos_embed"]})
    words = ("batch", "zoo", "--to-grid", "4x4", "-o", "out", "-j", "1", "--json")
    first = run(*words)
    assert set(first.statuses.values()) == {"unchanged"}
    Path("out", NAME).unlink()
    assert set(run(*words).statuses.values()) == {"current"}


def test_without_the_ledger_a_record_of_the_same_request_makes_it_ours(run: Run) -> None:
    run(*WORDS)
    Path("out", NAME).unlink()
    write_safetensors(Path("zoo/a.safetensors"), vit(channels=24))
    assert run(*WORDS, "--json").statuses["a.safetensors"] == "resized"


def test_a_new_version_looks_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*WORDS)
    text = Path("out", NAME).read_text().replace('"version":"', '"version":"0.0.')
    Path("out", NAME).write_text(text)
    opened: list[Path] = []

    def note(path: Path) -> Container:
        opened.append(path)
        return open_container(path)

    monkeypatch.setattr("resize_pos.run.job.open_container", note)
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT
    assert Path("zoo/a.safetensors") in opened


def test_a_torn_ledger_is_read_up_to_the_tear(run: Run) -> None:
    run(*WORDS)
    path = Path("out", NAME)
    path.write_text(path.read_text().rstrip("\n")[:-20])
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT
    assert run(*WORDS, "--json").statuses == BOTH_CURRENT


def test_two_batches_do_not_share_a_folder(run: Run) -> None:
    Path("out").mkdir()
    with Ledger(Path("out")):
        refused = run(*WORDS)
    assert refused.code == 1
    assert "another batch is writing there" in refused.err
    assert tree(Path("out")) == {}


def test_one_failure_does_not_stop_the_others(run: Run) -> None:
    Path("zoo/c.safetensors").write_bytes(b"<html>" + bytes(10**6))  # the largest, so the first
    done = run(*WORDS, "--json")
    assert done.code == 1
    assert done.statuses == {**BOTH_RESIZED, "c.safetensors": "failed"}
    line = done.jobs["c.safetensors"]
    assert "a web page" in line["error"]
    assert line["hint"]
    assert line["job"] == {"number": 2, "of": 3, "bytes": 10**6 + 6, "reports": []}


def test_fail_fast_stops(run: Run) -> None:
    Path("zoo/c.safetensors").write_bytes(b"<html>" + bytes(10**6))
    done = run(*WORDS, "--fail-fast")
    assert done.code == 1
    assert "0 done, 1 failed, 2 not started" in done.out
    assert tree(Path("out")) == {}


def test_a_failed_job_leaves_no_folder(run: Run) -> None:
    Path("zoo/deep/er").mkdir(parents=True)
    Path("zoo/deep/er/c.safetensors").write_bytes(b"")
    run(*WORDS)
    assert not Path("out/deep").exists()


def test_the_disk_is_checked_for_the_whole_before_anything_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [path.stat().st_size for path in Path("zoo").rglob("*.safetensors")]

    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    # Enough for each of them, but not for both.
    usage = Usage(10**9, 0, max(sizes) + 20_000)
    assert usage.free < sum(sizes)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    done = run(*WORDS)
    assert done.code == 1
    assert "are needed but only" in done.err
    assert tree(Path("out")) == {}


def test_a_dry_run_writes_nothing_and_knows_what_is_current(run: Run) -> None:
    planned = run(*WORDS, "-n", "--json")
    assert planned.code == 0
    assert set(planned.statuses.values()) == {"planned"}
    assert planned.jobs["a.safetensors"]["output"] == "out/a.safetensors"
    assert not Path("out").exists()
    run(*WORDS)
    Path("out/a.safetensors").unlink()
    before = tree(Path())
    assert run(*WORDS, "-n", "--json").statuses == {
        "a.safetensors": "planned",
        "b.safetensors": "current",
    }
    assert tree(Path()) == before


def test_a_dry_run_fails_where_the_real_one_would(run: Run) -> None:
    Path("zoo/c.safetensors").write_bytes(b"")
    Path("out").mkdir()
    write_safetensors(Path("out/a.safetensors"), vit(2, 2))
    done = run(*WORDS, "-n", "--json")
    assert done.code == 1
    assert done.statuses == {
        "a.safetensors": "planned",  # with --force, which the plan says
        "b.safetensors": "planned",
        "c.safetensors": "failed",
    }
    assert done.jobs["a.safetensors"]["needs_force"]
    assert not done.jobs["b.safetensors"]["needs_force"]


def test_a_dry_run_imports_neither_torch_nor_numpy(run: Run, tmp_path: Path) -> None:
    names = loaded_after(*WORDS, "--from", "64", "-n")
    assert not names & (HEAVY | {"numpy", "multiprocessing.pool", "concurrent.futures.process"})


def test_a_conversion_imports_neither_torch_nor_jinja(run: Run) -> None:
    assert not loaded_after(*WORDS) & HEAVY


def test_a_failed_check_ends_with_three_also_when_it_is_current(run: Run) -> None:
    limited = (*WORDS, "--max", "norm_change=0.0001")
    for status in ("resized", "current"):
        done = run(*limited, "--json")
        assert set(done.statuses.values()) == {status}
        assert {line["verdict"] for line in done.jobs.values()} == {"fail"}
        assert done.code == 3
    summary = run(*limited)
    assert summary.code == 3
    assert "2 current, 0 failed; 2 of these warned" in summary.out
    assert "norm_change" in summary.out


def test_another_limit_judges_again_and_converts_nothing(run: Run) -> None:
    assert run(*WORDS, "--json").code == 0
    before = Path("out/a.safetensors").stat().st_mtime_ns
    limited = run(*WORDS, "--json", "--max", "norm_change=0.0001")
    assert limited.statuses == BOTH_CURRENT
    assert limited.code == 3
    assert Path("out/a.safetensors").stat().st_mtime_ns == before
    assert run(*WORDS, "--json").code == 0


def test_a_manifest_gives_sizes_of_their_own(run: Run) -> None:
    Path("jobs.csv").write_text(
        "source,output,to\nzoo/a.safetensors,x/one.safetensors,64x96\nzoo/sub/*,,\n"
    )
    words = ("batch", "--manifest", "jobs.csv", "--to", "96x128", "-o", "out", "-j", "1", "--json")
    done = run(*words)
    assert done.code == 0
    assert done.jobs["a.safetensors"]["request"]["to"] == [64, 96]
    assert done.jobs["b.safetensors"]["request"]["to"] == [96, 128]
    assert sorted(tree(Path("out"))) == ["b.safetensors", "x/one.safetensors"]
    assert set(run(*words).statuses.values()) == {"current"}


# words after `batch`, exit code, what the error must say
REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no source": (["--to", "96", "-o", "out"], 2, "nothing to convert"),
    "no folder": (["zoo", "--to", "96"], 2, "--output-dir"),
    "no target": (["zoo", "-o", "out"], 2, "no target is given"),
    "no processes": (["zoo", "--to", "96", "-o", "out", "-j", "0"], 2, "0"),
    "dask and -j": (["zoo", "--to", "96", "-o", "out", "-j", "2", "--dask", "x"], 2, "-j counts"),
    "quiet json": (["zoo", "--to", "96", "-o", "out", "-q", "--json"], 2, "-q excludes"),
    "report format": (["zoo", "--to", "96", "-o", "out", "--report", "z.docx"], 2, ".html"),
    "report folder": (["zoo", "--to", "96", "-o", "out", "--report", "no/z.md"], 1, "not exist"),
    "collision": (["zoo", "zoo/sub", "--to", "96", "-o", "out"], 2, "would both become"),
    "nothing there": (["zoo/none", "zoo/*.pt", "--to", "96", "-o", "zoo"], 1, "none"),
    "the zoo itself": (["zoo", "--to", "96", "-o", "zoo"], 2, "is the source folder itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_gets_words_and_a_code_and_nothing_is_written(case: str, run: Run) -> None:
    words, code, text = REFUSED[case]
    if case == "collision":
        shutil.copy("zoo/sub/b.safetensors", "zoo/b.safetensors")
    before = tree(Path())
    done = run("batch", *words)
    assert done.code == code, done.err
    assert text in done.err + done.out
    assert tree(Path()) == before


def test_quiet_prints_only_what_was_written(run: Run) -> None:
    Path("zoo/c.safetensors").write_bytes(b"")
    done = run(*WORDS, "-q")
    assert sorted(done.out.splitlines()) == ["out/a.safetensors", "out/sub/b.safetensors"]
    assert done.err.startswith("error: zoo/c.safetensors: the file is empty")


def test_a_terminal_gets_one_bar_for_the_whole_and_a_line_for_each_job(run: Run) -> None:
    write_safetensors(
        Path("zoo/large.safetensors"), {**vit(), "bulk": np.zeros((30, 1000, 1000), np.float32)}
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "resize_pos", *WORDS],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 1 << 16):
                seen += chunk
        except OSError:  # how a terminal says that nobody writes any more
            pass
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(ours)
    assert process.returncode == 0
    assert "checkpoints" in seen.decode()
    assert "large.safetensors" in seen.decode()
    assert "[1/3]" not in seen.decode()
    assert out.startswith("3 done, 0 failed")


def test_replacing_a_target_converts_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*WORDS)
    calls: list[Path] = []

    def counted(job: Job) -> Report:
        calls.append(job.source)
        return run_job(job)

    monkeypatch.setattr(work, "run", counted)
    done = run("batch", "zoo", "--to", "128x96", "-o", "out", "-j", "1", "--force", "--json")
    assert set(done.statuses.values()) == {"resized"}
    assert len(calls) == len(set(calls)) == len(done.statuses)
    assert not list(Path("out").rglob(".*resize-pos-part"))
    fresh = run("batch", "zoo", "--to", "128x96", "-o", "fresh", "-j", "1", "--json")
    assert fresh.statuses == BOTH_RESIZED
    assert tree(Path("out")) == tree(Path("fresh"))
