"""Which files are checkpoints, which folders are one, and where their copies belong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from resize_pos.core.errors import ContainerError, ResizePosError, UsageError
from resize_pos.core.request import Request
from resize_pos.run.batch.discover import discover, is_model_folder, size_of
from resize_pos.run.batch.jobs import collect, require_distinct
from resize_pos.run.batch.manifest import ManifestJob
from resize_pos.run.job import Job

REQUEST = Request.make(to="96x128")
TEMPLATE = Job(Path(), REQUEST)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x" * 10)


def found(*words: str, out: str = "out") -> dict[str, str]:
    return {str(it.source): str(it.place) for it in discover(words, Path(out)).found}


def test_the_tree_below_a_folder_is_mirrored() -> None:
    make("zoo/a.safetensors", "zoo/sub/b.pth", "zoo/sub/notes.txt", "zoo/sub/deep/c.npz")
    assert found("zoo") == {
        "zoo/a.safetensors": "a.safetensors",
        "zoo/sub/b.pth": "sub/b.pth",
        "zoo/sub/deep/c.npz": "sub/deep/c.npz",
    }


FOLDERS: dict[str, tuple[list[str], bool]] = {
    "hf": (["config.json", "model.safetensors", "README.md"], True),
    "open_clip": (["open_clip_config.json", "open_clip_model.safetensors"], True),
    "sharded": (["model.safetensors.index.json", "model-00001-of-00002.safetensors"], True),
    "sharded variant": (["model.safetensors.index.fp16.json"], True),
    "sharded bin": (["pytorch_model.bin.index.json"], True),
    "distributed": ([".metadata", "__0_0.distcp"], True),
    "config alone": (["config.json", "tokenizer.json"], False),
    "weights alone": (["a.safetensors", "b.safetensors"], False),
    "training state": (["config.json", "optimizer.pt", "rng_state_0.pth"], False),
    "hidden weights": (["config.json", ".model.safetensors"], False),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_with_an_index_or_a_config_is_one_checkpoint(case: str) -> None:
    names, expected = FOLDERS[case]
    assert is_model_folder(names) is expected


def test_a_model_folder_is_one_job_and_is_not_entered() -> None:
    make("zoo/m/config.json", "zoo/m/model.safetensors", "zoo/m/onnx/x.pt", "zoo/a.pt")
    assert found("zoo") == {"zoo/a.pt": "a.pt", "zoo/m": "m"}
    assert found("zoo/m") == {"zoo/m": "m"}
    assert found("zoo/m/") == {"zoo/m": "m"}
    assert size_of(Path("zoo/m")) == 30


def test_hidden_and_unfinished_files_are_skipped() -> None:
    make(
        "zoo/.hidden.safetensors", "zoo/.git/a.pt", "zoo/.a.pt.0badbeef.resize-pos-part", "zoo/b.pt"
    )
    make("zoo/training_args.bin", "zoo/optimizer.pt", "zoo/rng_state_0.pth")
    assert found("zoo") == {"zoo/b.pt": "b.pt"}


def test_links_are_followed_but_never_in_circles() -> None:
    make("zoo/a/x.pt", "blobs/y")
    Path("zoo/a/loop").symlink_to(Path("..").resolve() / Path.cwd().name / "zoo")
    Path("zoo/b").symlink_to(Path("zoo/a").resolve())
    Path("zoo/y.pt").symlink_to(Path("blobs/y").resolve())
    assert found("zoo") == {"zoo/a/x.pt": "a/x.pt", "zoo/y.pt": "y.pt"}


def test_the_output_folder_is_no_source() -> None:
    make("zoo/a.pt", "zoo/out/b.pt")
    assert found("zoo", out="zoo/out") == {"zoo/a.pt": "a.pt"}


def test_a_glob_may_come_unexpanded() -> None:
    make("zoo/a.pt", "zoo/b.pt", "zoo/notes.txt", "zoo/s/c.pt", "zoo/.d.pt")
    assert found("zoo/*.pt") == found("zoo/a.pt", "zoo/b.pt")
    assert found("zoo/**/*.pt") == {**found("zoo/*.pt"), "zoo/s/c.pt": "s/c.pt"}
    assert found("zoo/*") == found("zoo/**/*.pt")


def test_a_file_whose_name_looks_like_a_glob_is_a_file() -> None:
    make("zoo/a[1].pt", "zoo/a1.pt")
    assert found("zoo/a[1].pt") == {"zoo/a[1].pt": "a[1].pt"}


def test_what_finds_nothing_is_noted() -> None:
    make("zoo/a.pt", "empty/readme.txt")
    notes = discover(["zoo", "empty", "*.ckpt"], Path("out")).notes
    assert notes == ["empty: holds no checkpoint.", "*.ckpt: matches nothing."]
    with pytest.raises(ContainerError, match="no checkpoint was found"):
        jobs("empty")


def jobs(*words: str, entries: Sequence[ManifestJob] = ()) -> dict[str, str]:
    found = collect(words, entries, Path(), {"to": "96x128"}, TEMPLATE, Path("out"))
    return {str(job.source): str(job.output) for job in found.jobs}


def test_a_missing_file_is_a_job_that_will_fail() -> None:
    assert jobs("nowhere.pt") == {"nowhere.pt": "out/nowhere.pt"}


def test_a_source_that_is_named_twice_is_one_job() -> None:
    make("zoo/a.pt")
    assert jobs("zoo", "zoo/a.pt", "zoo/*.pt") == {"zoo/a.pt": "out/a.pt"}


COLLISIONS: dict[str, tuple[list[str], list[str], str]] = {
    "same name": (["x/a.pt", "y/a.pt"], ["x", "y"], "x/a.pt and y/a.pt would both become out/a.pt"),
    "same name, files": (["x/a.pt", "y/a.pt"], ["x/a.pt", "y/a.pt"], "would both become"),
    "inside another": (
        ["m/config.json", "m/model.pt", "y/m/b.pt"],
        ["m", "y"],
        "y/m/b.pt would become out/m/b.pt, inside of out/m",
    ),
    "over a source": (["out/a.pt", "x/a.pt"], ["out/a.pt", "x/a.pt"], "would both become|a source"),
    "the folder itself": (["out/a.pt"], ["out"], "is the source folder itself"),
}


@pytest.mark.parametrize("case", COLLISIONS)
def test_two_jobs_never_write_the_same_target(case: str) -> None:
    files, words, message = COLLISIONS[case]
    make(*files)
    with pytest.raises(ResizePosError, match=message):
        jobs(*words)


def test_a_target_that_is_another_jobs_source_is_refused() -> None:
    make("out/a.pt", "x/a.pt")
    pair = [
        Job(Path("out/a.pt"), REQUEST, Path("out/b.pt")),
        Job(Path("x/a.pt"), REQUEST, Path("out/a.pt")),
    ]
    with pytest.raises(ResizePosError, match="the target is a source"):
        require_distinct(pair)


def test_an_entry_gives_a_job_its_own_place_and_options() -> None:
    make("zoo/a.pt", "zoo/b.pt", "other/c.pt")
    entries = [
        ManifestJob("job 1", "other/c.pt", "renamed.pt", {"to_grid": "8x4"}),
        ManifestJob("job 2", "zoo", "below", {}),
    ]
    found = collect((), entries, Path(), {"to": "96x128"}, TEMPLATE, Path("out"))
    assert {str(job.source): str(job.output) for job in found.jobs} == {
        "other/c.pt": "out/renamed.pt",
        "zoo/a.pt": "out/below/a.pt",
        "zoo/b.pt": "out/below/b.pt",
    }
    first, *rest = found.jobs
    assert first.request == Request.make(to_grid="8x4")
    assert {job.request for job in rest} == {REQUEST}


@pytest.mark.parametrize("output", ["../up.pt", "/tmp/abs.pt"])
def test_an_entry_stays_below_the_output_folder(output: str) -> None:
    make("a.pt")
    with pytest.raises(UsageError, match="not below --output-dir"):
        jobs(entries=[ManifestJob("job 1", "a.pt", output, {})])
