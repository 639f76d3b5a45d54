"""The target appears whole or not at all, and every refusal is in words."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from resize_pos.containers.io import rename
from resize_pos.containers.io.atomic_output import (
    output_error,
    require_space,
    require_writable,
    staged,
)
from resize_pos.containers.io.stage_names import PART_SUFFIX
from resize_pos.core.errors import ContainerError, OutputError

FAILURES: list[BaseException] = [
    ValueError("planned"),
    KeyboardInterrupt(),
    SystemExit(3),
    ContainerError("vit.safetensors: broken."),
    MemoryError(),
]

SYSTEM_ERRORS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "read-only",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "quota",
    errno.EFBIG: "no file this large",
    errno.ENAMETOOLONG: "name is too long",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "not a folder",
    errno.EIO: "error",  # not in the table: the system's own words
}


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def system_error(number: int, filename: Path | None = None) -> OSError:
    return OSError(number, os.strerror(number), *([filename] if filename else []))


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the path behind every fsync."""
    seen: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: seen.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    )
    return seen


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(PART_SUFFIX)]


def test_the_target_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    with staged(target, force=False) as stage:
        assert not stage.exists()
        assert stage.parent == target.parent
        assert stage.name.startswith(".out.safetensors.")
        assert stage.name.endswith(PART_SUFFIX)
        stage.write_bytes(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    assert leftovers(tmp_path) == []


def test_two_runs_never_share_a_stage(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with staged(target, force=True) as first, staged(target, force=True) as second:
        assert first != second
        first.write_bytes(b"1")
        second.write_bytes(b"2")
    assert target.read_bytes() == b"1"  # the outer one ended last


@pytest.mark.parametrize("failure", FAILURES, ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("exists", [False, True])
def test_any_failure_leaves_the_folder_as_it_was(
    failure: BaseException, exists: bool, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    if exists:
        target.write_bytes(b"old")
    with pytest.raises(type(failure)) as caught, staged(target, force=True) as stage:
        stage.write_bytes(b"half")
        raise failure
    assert caught.value is failure
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"old"] if exists else [])


def test_a_failure_before_anything_is_written_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="early"), staged(tmp_path / "out", force=False):
        raise ValueError("early")
    assert list(tmp_path.iterdir()) == []


def test_a_staged_folder_is_renamed_or_removed_as_a_whole(tmp_path: Path) -> None:
    with staged(tmp_path / "model", force=False) as stage:
        stage.mkdir()
        (stage / "config.json").write_text("{}")
    assert (tmp_path / "model" / "config.json").read_text() == "{}"
    with pytest.raises(ValueError, match="no"), staged(tmp_path / "other", force=False) as stage:
        stage.mkdir()
        (stage / "config.json").write_text("{}")
        raise ValueError("no")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_existing_target_is_refused_before_the_work(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with (
        pytest.raises(OutputError, match="out: already exists") as caught,
        staged(target, force=False),
    ):
        pytest.fail("the work was started")
    assert "--force" in (caught.value.hint or "")
    assert target.read_bytes() == b"old"


def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with (
        pytest.raises(OutputError, match="out: already exists"),
        staged(target, force=False) as stage,
    ):
        stage.write_bytes(b"new")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert leftovers(tmp_path) == []


def test_force_replaces_the_target(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with staged(target, force=True) as stage:
        stage.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"


def test_force_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(b"shared")
    target = tmp_path / "out"
    target.symlink_to(blob)
    with staged(target, force=True) as stage:
        stage.write_bytes(b"new")
    assert blob.read_bytes() == b"shared"
    assert not target.is_symlink()


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="already exists"), staged(target, force=False):
        pytest.fail("the work was started")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_or_a_device_is_never_replaced(force: bool, tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="is a folder"), staged(folder, force=force):
        pytest.fail("the work was started")
    with pytest.raises(OutputError, match="not a regular file"), staged(pipe, force=force):
        pytest.fail("the work was started")


def test_only_a_replaced_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc here")
    seen = synced(monkeypatch)
    with staged(tmp_path / "out", force=True) as stage:
        stage.write_bytes(b"new")
    assert seen == []
    with staged(tmp_path / "out", force=True) as stage:
        stage.write_bytes(b"newer")
    assert seen == [str(stage), str(tmp_path)]


def test_a_durable_target_is_synced_though_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc here")
    seen = synced(monkeypatch)
    with staged(tmp_path / "out", force=False, durable=True) as stage:
        stage.write_bytes(b"new")
    assert seen == [str(stage), str(tmp_path)]
    del seen[:]
    source = tmp_path / "source"
    source.write_bytes(b"linked")
    with staged(tmp_path / "model", force=False, folder=True, durable=True) as stage:
        (stage / "sub").mkdir(parents=True)
        (stage / "sub" / "config.json").write_text("{}")
        (stage / "shard").hardlink_to(source)
    assert seen == [
        str(stage / "sub" / "config.json"),
        str(stage / "sub"),
        str(stage / "shard"),
        str(stage),
        str(tmp_path),
    ]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_durable_says_what_is_there_when_the_folder_cannot_be_synced(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter([None, system_error(number)])

    def second_fails(handle: int) -> None:
        error = next(calls)
        if error:
            raise error

    monkeypatch.setattr(os, "fsync", second_fails)
    target = tmp_path / "out"
    with contextlib.ExitStack() as stack:
        if fails:
            stack.enter_context(pytest.raises(OutputError, match="complete and in place, but"))
        with staged(target, force=False, durable=True) as stage:
            stage.write_bytes(b"new")
    assert target.read_bytes() == b"new"


def test_a_folder_that_cannot_be_synced_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter([None, system_error(errno.EINVAL)])

    def second_fails(handle: int) -> None:
        error = next(calls)
        if error:
            raise error

    monkeypatch.setattr(os, "fsync", second_fails)
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with staged(target, force=True) as stage:
        stage.write_bytes(b"new")
    assert target.read_bytes() == b"new"


def test_a_file_that_cannot_be_synced_is_not_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(handle: int) -> None:
        raise system_error(errno.EIO)

    monkeypatch.setattr(os, "fsync", fails)
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with pytest.raises(OutputError), staged(target, force=True) as stage:
        stage.write_bytes(b"new")
    assert target.read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("number", "words"), SYSTEM_ERRORS.items())
@pytest.mark.parametrize("named", [False, True])
def test_system_errors_come_out_in_words(
    number: int, words: str, named: bool, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    with pytest.raises(OutputError, match=f"out: cannot be written: .*{words}"):  # noqa: SIM117
        with staged(target, force=False) as stage:
            raise system_error(number, stage if named else None)
    assert list(tmp_path.iterdir()) == []


def test_an_error_about_another_file_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), staged(tmp_path / "out", force=False):
        (tmp_path / "other").read_bytes()


def test_errors_name_the_target_and_not_the_stage(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"/out: cannot be written: no space") as caught,
        staged(tmp_path / "out", force=False) as stage,
    ):
        raise output_error(stage, system_error(errno.ENOSPC))
    assert PART_SUFFIX not in caught.value.message
    assert caught.value.hint


def test_a_long_name_still_fits_while_staged(tmp_path: Path) -> None:
    target = tmp_path / ("ä" * 120 + ".safetensors")  # 252 bytes
    with staged(target, force=False) as stage:
        stage.write_bytes(b"new")
    assert target.read_bytes() == b"new"


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="the name is too long"),
        staged(tmp_path / ("x" * 300), force=False),
    ):
        pytest.fail("the work was started")


def test_nothing_staged_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no such file"), staged(tmp_path / "out", force=False):
        pass


@pytest.mark.parametrize("check", [require_writable, lambda it: require_space(it, 1)])
def test_a_missing_folder_is_refused(check: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere: .*no such"):
        check(tmp_path / "nowhere")


def test_a_missing_folder_is_refused_with_the_fix(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="nowhere: no such folder") as caught,
        staged(tmp_path / "nowhere" / "out", force=False),
    ):
        pytest.fail("the work was started")
    assert "mkdir" in (caught.value.hint or "")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="file: not a folder"):
        require_writable(tmp_path / "file")
    with pytest.raises(OutputError, match="not a folder"):
        require_writable(tmp_path / "file" / "below")


def test_a_folder_without_write_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(OutputError, match="the folder is not writable") as caught:
        require_writable(tmp_path)
    assert caught.value.hint


def test_a_writable_folder_is_accepted(tmp_path: Path) -> None:
    require_writable(tmp_path)
    require_space(tmp_path, 1)


@pytest.mark.parametrize(
    ("needed", "free", "words"),
    [
        (1_300_000_000, 120, "1.3 GB are needed but only 120 bytes are free"),
        (999_999, 1_000, "1.0 MB are needed but only 1.0 kB are free"),
        (5 * 10**12, 4_900_000_000, "5.0 TB are needed but only 4.9 GB are free"),
    ],
)
def test_too_little_space_is_told_in_human_units(
    needed: int, free: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**13, 0, free))
    with pytest.raises(OutputError, match=words):
        require_space(tmp_path, needed)


def test_a_disk_without_a_limit_holds_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 0))
    require_space(tmp_path, 10**15)


def model(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "model.safetensors").write_text(content)
    return folder


def exchange_fails(*_: object) -> bool:
    return False


@pytest.mark.parametrize("atomic", [True, False])
def test_a_folder_is_replaced_by_a_folder_when_forced(
    atomic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not atomic:
        monkeypatch.setattr(rename, "exchange", exchange_fails)
    target = model(tmp_path / "model", "old")
    with (
        pytest.raises(OutputError, match="already exists"),
        staged(target, force=False, folder=True),
    ):
        pytest.fail("the work was started")
    with staged(target, force=True, folder=True) as stage:
        model(stage, "new")
        assert (target / "model.safetensors").read_text() == "old"
    assert (target / "model.safetensors").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda it: type(it).__name__)
def test_a_failure_leaves_the_old_folder(failure: BaseException, tmp_path: Path) -> None:
    target = model(tmp_path / "model", "old")
    with pytest.raises(type(failure)), staged(target, force=True, folder=True) as stage:
        model(stage, "half")
        raise failure
    assert (target / "model.safetensors").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rename, "exchange", exchange_fails)
    target = model(tmp_path / "model", "old")
    real = Path.rename

    def fails_for_the_stage(path: Path, to: Path) -> Path:
        if path.name.endswith(PART_SUFFIX):
            raise system_error(errno.EACCES, path)
        return real(path, to)

    with (
        pytest.raises(OutputError, match="permission denied"),
        staged(target, force=True, folder=True) as stage,
    ):
        model(stage, "new")
        monkeypatch.setattr(Path, "rename", fails_for_the_stage)
    assert (target / "model.safetensors").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_force_does_not_delete_a_folder_that_is_no_model(tmp_path: Path) -> None:
    target = tmp_path / "documents"
    target.mkdir()
    (target / "letter.txt").write_text("dear")
    with (
        pytest.raises(OutputError, match="holds no weights"),
        staged(target, force=True, folder=True),
    ):
        pytest.fail("the work was started")
    assert (target / "letter.txt").read_text() == "dear"


def test_force_does_not_delete_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = model(tmp_path / "model", "old")
    monkeypatch.chdir(target)
    with (
        pytest.raises(OutputError, match="cannot be replaced"),
        staged(target, force=True, folder=True),
    ):
        pytest.fail("the work was started")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_folder_never_replaces_a_file(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    if kind == "file":
        target.write_bytes(b"file")
    else:
        target.symlink_to(model(tmp_path / "elsewhere", "linked"))
    with (
        pytest.raises(OutputError, match="is not a folder"),
        staged(target, force=True, folder=True),
    ):
        pytest.fail("the work was started")
