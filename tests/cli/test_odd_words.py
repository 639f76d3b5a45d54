"""Words that people type although the program expects others: the answer says what to write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import resize_pos
from resize_pos.cli.app import main
from resize_pos.containers.safetensors.file import SafetensorsFile
from resize_pos.core.errors import UsageError


@pytest.fixture
def folder(vit_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(vit_file, tmp_path / "other.safetensors")
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused; return what it says."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code in (1, 2)
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "bug" not in told
    return told


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["vit.safetensors", "96"], "write --to 96."),
        (["vit.safetensors", "--to", "96", "128"], "write --to 96x128."),
        (["vit.safetensors", "--size", "96"], "Here it is called --to."),
        (["vit.safetensors", "--img_size", "96"], "Here it is called --to."),
        (["vit.safetensors", "--to", "96", "--overwrite"], "Here it is called --force."),
        (["vit.safetensors", "other.safetensors", "--to", "96"], "resize-pos batch FILES --to"),
        (["verify", "vit.safetensors", "other.safetensors"], "verify OUTPUT --against SOURCE"),
        (["vit.safetensors", "--to", "96", "--max", "norm=1"], "did you mean norm_ratio, "),
        (["vit.safetensors", "--to", "0"], "must be between 1 and"),
        (["vit.safetensors", "--to", "96", "-o", ""], "-o is empty."),
        (["vit.safetensors", "--to", "96", "--report", "-n"], "--report -n: no file is named."),
        (["vit.safetensors", "--to", "96", "--report", "no/r.md"], "mkdir -p no"),
        (["vit.safetensors", "--to", "96", "--prefix", "two"], "not a valid whole number."),
        (["vit.safetensors", "--from-grid", "4x7", "--to", "96"], "drop --from-grid, or correct"),
        (["vit.safetensors", "--grid-size", "6"], "Here it is called --to-grid."),
        ([".\\vit.safetensors", "--to", "96"], "separated by / here: write ./vit.safetensors"),
        (["'vit.safetensors'", "--to", "96"], "without the quotes in its name: vit.safetensors"),
        (["~/none.safetensors", "--to", "96"], "~ is not expanded here: write /"),
        (["hf:org/name", "--to", "96"], "write hf://org/name"),
        (["convert", "vit.safetensors", "--to", "96"], "Did you mean 'resize'?"),
        (["show", "vit.safetensors"], "Did you mean 'inspect'?"),
        (["version"], "Did you mean '--version'?"),
        (["inspect", "vit.safetensors", "--to", "96"], "resize-pos CHECKPOINT --to SIZE -n"),
        (["explain", "vit.safetensors"], "resize-pos inspect vit.safetensors shows what it"),
        (["https://huggingface.co/org/name", "--to", "96"], "write hf://org/name"),
        (["https://hf.co/org/name/tree/main", "--to", "96"], "write hf://org/name"),
        (["vit.safetensors", "--to", "96", "x", "160"], "write --to 96x160."),
        (["vit.safetensors", "--to", "96,", "160"], "write --to 96x160."),
        (["vit.safetensors", "-to", "96"], "A long option has two dashes: --to"),
        (["verify", "vit.safetensors", "-size", "96"], "has two dashes: --size"),
        (["96", "vit.safetensors"], "write: resize-pos vit.safetensors --to 96"),
        (["vit.safetensors", "--to", "96", "--to", "160"], "--to is given twice: 96 and 160."),
        (["vit.safetensors", "--to", "96", "-o", "a.pt", "-o", "b.pt"], "--output is given twice"),
        (["verify", "vit.safetensors", "--size", "96", "--size", "64"], "--size is given twice"),
        (["compare", "vit.safetensors", "--to", "96", "--to", "64"], "--to is given twice"),
        (["vit.safetensors", "--to", "0x10"], "'0x10' must be between 1 and"),
        (["vit.safetensors", "--to-grid", "wide"], "write 24, or 24x32"),
        (["verify", "vit.safetensors", "--size", "big"], "--size 'big' is neither"),
        (["vit.safetensor", "--to", "96"], "Did you mean vit.safetensors?"),
        (["-", "--to", "96"], "is not read from stdin"),
        (["ftp://host/vit.pth", "--to", "96"], "URLs are read from s3://"),
        (["hf://", "--to", "96"], "write hf://ORG/NAME"),
        (["help", "nonsense"], "The commands are resize, inspect"),
        (["hlep"], "Did you mean 'help'?"),
        (["explain", "missing.log"], "missing.log: no such file"),
        (["explain", "size mismatch for pos_embed"], "paste the whole line"),
    ],
)
def test_the_answer_says_what_to_write(
    words: list[str], answer: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer in refused(words, capsys)
    assert sorted(path.name for path in folder.iterdir()) == [
        "other.safetensors",
        "vit.safetensors",
    ]


@pytest.mark.parametrize("first", [[], ["resize"]])
def test_a_name_with_spaces_is_answered_with_quotes(
    first: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "vit.safetensors").rename(folder / "my vit.safetensors")
    answer = "A name with spaces needs quotes: 'my vit.safetensors'"
    assert answer in refused([*first, "my", "vit.safetensors", "--to", "96"], capsys)


SAME = [
    ["vit.safetensors", "--to", "(96, 160)"],
    ["vit.safetensors", "--to", "[96,160]"],
    ["vit.safetensors", "--to", "96 160"],
    ["vit.safetensors", "--to", "96x160", "--method", "Bicubic"],
    ["vit.safetensors", "--to", "96x160", "--like", "TIMM"],
]


@pytest.mark.parametrize("words", SAME)
def test_brackets_and_capitals_mean_the_same(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, typed in (("a", ["vit.safetensors", "--to", "96x160"]), ("b", words)):
        with pytest.raises(SystemExit) as caught:
            main([*typed, "-q", "-o", f"{name}.safetensors"])
        assert caught.value.code == 0, capsys.readouterr().err
    a, b = (SafetensorsFile.open(folder / f"{name}.safetensors") for name in "ab")
    assert a.read("pos_embed").tobytes() == b.read("pos_embed").tobytes()


def test_the_address_of_a_file_is_its_path(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "vit.safetensors").rename(folder / "my vit.safetensors")
    with pytest.raises(SystemExit) as caught:
        main([f"file://{folder}/my%20vit.safetensors", "--to", "96", "-q"])
    assert caught.value.code == 0, capsys.readouterr().err
    assert (folder / "my vit-96.safetensors").is_file()


def test_our_word_stands_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """click suggests options by their letters, which are not what --size means."""
    del folder
    assert "Did you mean" not in refused(["vit.safetensors", "--size", "96"], capsys)
    assert "Did you mean" in refused(["vit.safetensors", "--too", "96"], capsys)


def test_the_same_value_twice_is_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["vit.safetensors", "--to", "96", "--to", "96", "-q"])
    assert caught.value.code == 0, capsys.readouterr().err
    assert (folder / "vit-96.safetensors").is_file()


def test_a_known_table_that_is_to_be_left_is_mentioned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    for pattern, mentioned in (("pos_embed", True), ("head", False)):
        with pytest.raises(SystemExit) as caught:
            main(["vit.safetensors", "--to", "96", "--leave", pattern, "-n"])
        assert caught.value.code == 0
        told = " ".join(capsys.readouterr().out.split())
        assert ("--leave does not keep pos_embed: tables of a known" in told) is mentioned


def test_a_name_that_begins_with_a_dash(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "vit.safetensors").rename(folder / "-vit.safetensors")
    assert "write ./-vit.safetensors" in refused(["-vit.safetensors", "--to", "96"], capsys)
    with pytest.raises(SystemExit) as caught:
        main(["--", "-vit.safetensors", "--to", "96", "-q"])
    assert caught.value.code == 0, capsys.readouterr().err
    assert (folder / "-vit-96.safetensors").is_file()


def test_a_link_to_nothing_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link.safetensors").symlink_to("gone.safetensors")
    told = refused(["link.safetensors", "--to", "96"], capsys)
    assert "is a link to gone.safetensors, where there is no file" in told


def test_a_folder_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the current folder does not exist" in refused(["x.pth", "--to", "96"], capsys)


def test_help_of_help_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["help", "help"])
    assert caught.value.code == 0
    assert "Commands:" in capsys.readouterr().out


def test_without_a_word_the_help_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused([], capsys)
    assert told.count("Usage:") == 1
    assert "Error" not in told
    assert "inspect" in told


MISMATCH = (
    "- pos_embed: found shape torch.Size([1, 197, 768]) in the checkpoint and "
    "torch.Size([1, 577, 768]) in the model instantiated"
)


def test_explain_takes_a_message_that_begins_with_a_dash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["explain", MISMATCH])
    assert caught.value.code == 0
    assert "--to-grid 24x24" in capsys.readouterr().out


def test_explain_reads_the_log_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"epoch 1\n{MISMATCH}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        main(["explain", str(log)])
    assert caught.value.code == 0
    assert "--to-grid 24x24" in capsys.readouterr().out
    assert "is a folder, not a log" in refused(["explain", str(tmp_path)], capsys)


def test_a_state_dict_inside_of_another_is_not_passed_over() -> None:
    inner = {"pos_embed": torch.zeros(1, 16, 8)}
    with pytest.raises(UsageError, match="'model' holds a dictionary of tensors") as caught:
        resize_pos.resize_state_dict({"epoch": 3, "model": inner}, to=96)  # type: ignore[dict-item]
    assert caught.value.hint == "pass that dictionary: state_dict['model']."
    with pytest.raises(UsageError, match=r"state_dict is 'vit\.safetensors'; expected"):
        resize_pos.resize_state_dict("vit.safetensors", to=96)  # type: ignore[call-overload]


def test_what_is_no_model_is_named(vit_file: Path) -> None:
    with pytest.raises(UsageError, match="the model is a NoneType"):
        resize_pos.fit_checkpoint(vit_file, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="force is 'yes'; expected True or False"):
        resize_pos.resize_checkpoint(vit_file, to=96, force="yes")  # type: ignore[arg-type]


def test_tensors_without_values_and_tensors_for_a_path_are_named(vit_file: Path) -> None:
    state = {"pos_embed": torch.zeros(1, 25, 8, device="meta"), "cls_token": torch.zeros(1, 1, 8)}
    with pytest.raises(UsageError, match=r"\['pos_embed'\] is on the meta device"):
        resize_pos.resize_state_dict(state, from_grid="4x6", to_grid="6x8")
    with pytest.raises(UsageError, match="path is of type dict; expected a path") as caught:
        resize_pos.resize_checkpoint({"a": torch.zeros(9, 9)}, to=96)  # type: ignore[arg-type]
    assert caught.value.hint is not None
    assert "resize_state_dict(state_dict, to=…)" in caught.value.hint
    with pytest.raises(UsageError, match='output="-": the output is checked') as streamed:
        resize_pos.resize_checkpoint(vit_file, to=96, output="-")
    assert streamed.value.hint == 'name a file, for example output="out.safetensors".'


def test_a_report_is_readable_when_it_is_printed(vit_file: Path) -> None:
    report = resize_pos.resize_checkpoint(vit_file, to=(96, 160))
    first, *more = str(report).splitlines()
    assert first == f"resized: {vit_file.parent / 'vit-96x160.safetensors'}"
    assert more[0] == f"verdict: {report.verdict.value}"
    assert more[-1] == "  pos_embed  4×4 → 6×10"
    assert len(more) <= 4
    assert report.output is not None
    verified = resize_pos.verify_checkpoint(report.output, vit_file)
    assert str(verified).startswith(f"verdict: {verified.verdict.value}")
    assert len(str(verified).splitlines()) <= 4
    planned = str(resize_pos.resize_checkpoint(vit_file, to=(96, 160), dry_run=True))
    assert planned.startswith("planned: ") and "verdict" not in planned
