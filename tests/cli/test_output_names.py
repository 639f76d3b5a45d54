"""The name of an output: a suffix that names a format is that format, or an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from resize_pos.cli.app import main
from resize_pos.containers.safetensors.file import SafetensorsFile


@pytest.fixture
def folder(vit_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert vit_file.parent == tmp_path
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a conversion; return its exit code and what it says."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    streams = capsys.readouterr()
    return int(caught.value.code or 0), " ".join(streams.out.split()), streams.err


REFUSED = [
    *("out.pdf", "out.txt", "out.jpg", "out.PNG", "out.html", "out.py", "out.csv", "out.yaml"),
    *("out.zip", "out.tar", "out.tar.gz", "out.zst", "out.h5", "out.gguf", "out.msgpack"),
    *("out.json", "out.npy"),
]


@pytest.mark.parametrize("name", REFUSED)
def test_the_suffix_of_another_format_is_refused(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = convert(["vit.safetensors", "--to", "96x160", "-o", name], capsys)
    assert code == 1
    assert f"{Path(name).suffix.lower()} names a file format" in told
    assert "name it *.safetensors or *.pth" in told
    assert [path.name for path in folder.iterdir()] == ["vit.safetensors"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("out.safetensor", "out.safetensors"), ("out.pthh", "out.pth"), ("out.ckptt", "out.ckpt")],
)
def test_a_mistyped_suffix_is_refused(
    name: str, meant: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, told = convert(["vit.safetensors", "--to", "96x160", "-o", name], capsys)
    assert code == 1
    assert f"did you mean {meant}?" in told
    assert [path.name for path in folder.iterdir()] == ["vit.safetensors"]


@pytest.mark.parametrize("name", ["out", "out.model", "vit.384", "vit-v1.2", "out.part", "a.best"])
@pytest.mark.parametrize("dry", [[], ["-n"]])
def test_a_name_without_a_format_is_told_with_the_one_it_gets(
    name: str, dry: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["vit.safetensors", "--to", "96x160", "-o", name, *dry]
    code, told, errors = convert(words, capsys)
    assert code == 0, errors
    assert f"the name {name} states no file format: it is written as safetensors;" in told
    assert f"most loaders expect {name}.safetensors." in told
    if not dry:
        assert SafetensorsFile.open(folder / name).tensors["pos_embed"].shape == (1, 61, 8)


def test_a_usual_name_is_not_commented(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["vit.safetensors", "--to", "96x160"]
    for name in ([], ["-o", "OUT.SAFETENSORS"], ["-o", "out.pth"], ["-o", "new/"]):
        code, told, errors = convert([*words, *name], capsys)
        assert code == 0, errors
        assert "states no file format" not in told
    assert torch.load(folder / "out.pth", weights_only=True)["pos_embed"].shape == (1, 61, 8)


def test_a_source_with_a_name_of_something_else_gets_the_suffix_of_its_content(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(folder / "vit.safetensors", folder / "weights.pdf")
    code, _, errors = convert(["weights.pdf", "--to", "96x160"], capsys)
    assert code == 0, errors
    assert (folder / "weights-96x160.safetensors").is_file()
    code, _, errors = convert(["weights.pdf", "--to", "96x160", "-o", "other.pdf"], capsys)
    assert code == 0, errors  # the name was chosen before


@pytest.mark.parametrize("forced", [[], ["--force"]])
def test_a_link_to_a_stream_is_never_replaced(
    forced: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "stream").symlink_to("/dev/null")
    (folder / "stdout").symlink_to("/proc/self/fd/1")
    for name in ("stream", "stdout"):
        code, _, told = convert(["vit.safetensors", "--to", "96", "-o", name, *forced], capsys)
        assert code == 1
        assert f"{name}: is not a regular file." in told
        assert (folder / name).is_symlink()
