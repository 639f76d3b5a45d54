"""A rename that never replaces, on systems with and without the calls for it."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from resize_pos.containers.io import atomic_output, rename
from resize_pos.containers.io.atomic_output import placed, staged
from resize_pos.containers.io.rename import exchange, rename_new
from resize_pos.core.errors import OutputError

WAYS = ["renameat2", "link", "look first"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take the better ways away, one after the other."""
    if request.param != "renameat2":
        monkeypatch.setattr(rename, "_renameat2", lambda *_: False)
    if request.param == "look first":

        def no_links(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", no_links)
    return str(request.param)


def make(path: Path, content: str, folder: bool) -> None:
    if folder:
        path.mkdir()
        path = path / "model.safetensors"
    path.write_text(content)


def content(path: Path) -> str:
    return (path / "model.safetensors" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("folder", [False, True])
def test_a_new_name_is_taken(way: str, folder: bool, tmp_path: Path) -> None:
    make(tmp_path / "stage", "new", folder)
    rename_new(tmp_path / "stage", tmp_path / "target")
    assert content(tmp_path / "target") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("kind", ["same", "dangling link"])
def test_a_name_that_is_taken_is_never_replaced(
    way: str, kind: str, folder: bool, tmp_path: Path
) -> None:
    make(tmp_path / "stage", "new", folder)
    if kind == "same":
        make(tmp_path / "target", "theirs", folder)
    else:
        (tmp_path / "target").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        rename_new(tmp_path / "stage", tmp_path / "target")
    assert content(tmp_path / "stage") == "new"
    if kind == "same":
        assert content(tmp_path / "target") == "theirs"


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("way", ["renameat2", "link"], indirect=True)
def test_a_target_that_appears_at_the_last_moment_is_not_replaced(
    way: str, folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program creates the target after the last look at it, just before the rename."""
    target = tmp_path / "target"
    looks = atomic_output.require_absent

    def then_it_appears(*args: object, **options: bool) -> bool:
        found = looks(*args, **options)  # type: ignore[arg-type]
        if stage.exists():
            make(target, "theirs", folder)
        return found

    with (
        pytest.raises(OutputError, match="target: was created by another program") as caught,
        staged(target, force=False, folder=folder) as stage,
    ):
        make(stage, "new", folder)
        monkeypatch.setattr(atomic_output, "require_absent", then_it_appears)
    assert caught.value.hint
    assert content(target) == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_an_error_of_the_rename_is_raised_with_both_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        rename_new(tmp_path / "nothing", tmp_path / "target")
    assert caught.value.filename == str(tmp_path / "nothing")


def test_a_call_that_is_interrupted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Library:
        @staticmethod
        def renameat2(*_: object) -> int:
            calls.append(1)
            ctypes.set_errno(errno.EINTR)
            return 0 if len(calls) == 3 else -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library)
    monkeypatch.setattr("sys.platform", "linux")
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert len(calls) == 3


@pytest.mark.parametrize("library", [OSError("none"), AttributeError("renameat2")])
def test_a_c_library_without_the_call_falls_back(
    library: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise library

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert not exchange(tmp_path / "a", tmp_path / "b")
    (tmp_path / "stage").write_text("new")
    rename_new(tmp_path / "stage", tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_what_was_put_in_place_is_known_even_if_an_interrupt_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_output, "_placed", [])
    real = rename.rename_new

    def interrupted(stage: Path, target: Path) -> None:
        real(stage, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(rename, "rename_new", interrupted)
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "out", force=False) as stage:
        stage.write_text("new")
    assert placed() == (tmp_path / "out",)
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "other", force=False) as stage:
        raise KeyboardInterrupt
    assert placed() == (tmp_path / "out",)
