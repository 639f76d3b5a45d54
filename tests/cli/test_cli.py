"""The command line as a contract: words, exit codes, streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resize_pos import __version__
from resize_pos.cli.app import main
from tests.support.builders import raw_tensors, vit, write_safetensors


class Outcome:
    """What a run printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert isinstance(caught.value.code, int)
        return Outcome(caught.value.code, captured.out, captured.err)

    return call


def test_the_first_command_of_the_readme(run: Any, vit_file: Path) -> None:
    done = run("vit.safetensors", "--from", "64", "--to", "96")
    assert done.code == 0
    for words in ("pos_embed", "4×4 → 6×6", "1 prefix row kept", "bicubic", "verdict: ok"):
        assert words in done.out
    assert done.out.rstrip().endswith("vit-96.safetensors")
    assert done.err == ""
    assert Path("vit-96.safetensors").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ["resize", "vit.safetensors", "--to", "96"],
        ["--to", "96", "vit.safetensors"],
        ["--to=96", "./vit.safetensors"],
        ["vit.safetensors", "--to-grid", "6x6"],
    ],
)
def test_options_may_come_first_and_the_command_may_be_left_out(
    words: list[str], run: Any, vit_file: Path
) -> None:
    assert run(*words, "-q").out == "vit-96.safetensors\n"


def test_a_typing_error_is_not_taken_for_a_file(run: Any) -> None:
    done = run("inpsect", "x.pt")
    assert done.code == 2
    assert "No such command 'inpsect'. Did you mean 'inspect'?" in done.err


# words after `vit.safetensors`, exit code, what the error must say
REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no target": ([], 2, "no target is given"),
    "malformed size": (["--to", "big"], 2, "'big' is neither a whole number nor HEIGHTxWIDTH"),
    "two targets": (["--to", "96", "--to-grid", "6x6"], 2, "exclude each other"),
    "axes alone": (
        ["--to", "96", "--axes", "h w d"],
        2,
        "fits no tensor that may be a position table",
    ),
    "like and method": (["--to", "96", "--like", "hf", "--method", "nearest"], 2, "--like fixes"),
    "antialiased nearest": (["--to", "96", "--method", "nearest", "--antialias"], 2, "no meaning"),
    "unknown method": (["--to", "96", "--method", "lanczos"], 2, "lanczos"),
    "unknown library": (["--to", "96", "--like", "keras"], 2, "keras"),
    "unknown family": (["--to", "96", "--family", "nobody"], 2, "nobody"),
    "unknown option": (["--to", "96", "--sideways"], 2, "--sideways"),
    "malformed device": (["--to", "96", "--device", "tpu"], 2, "tpu"),
    "absent device": (["--to", "96", "--device", "cuda:7"], 1, "cuda:7"),
    "not divisible": (
        ["--from", "64", "--to", "100"],
        1,
        "the nearest sizes that fit are 96 px or 112 px",
    ),
    "from disagrees": (["--from", "128", "--to", "96"], 1, "17 = 1 + 4×4 is a 64 px / patch 16"),
    "target is source": (["--to", "96", "-o", "vit.safetensors"], 1, "the target is the source"),
    "target folder missing": (["--to", "96", "-o", "no/x.safetensors"], 1, "no such folder"),
    "target is of another format": (["--to", "96", "-o", "a.onnx"], 1, "not converted to"),
    "target is a stream": (["--to", "96", "-o", "-"], 2, "cannot be a stream"),
    "report format": (["--to", "96", "--report", "r.docx"], 2, ".json"),
    "report folder": (["--to", "96", "--report", "no/r.json"], 1, "does not exist"),
    "quiet and verbose": (["--to", "96", "-q", "-v"], 2, "-q excludes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_gets_words_and_a_code_and_nothing_is_written(
    case: str, run: Any, vit_file: Path
) -> None:
    words, code, text = REFUSED[case]
    done = run("vit.safetensors", *words)
    assert done.code == code, done.err
    assert text in done.err
    assert done.out == ""
    assert os.listdir() == ["vit.safetensors"]  # noqa: PTH208


HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
BAD_FILES: dict[str, bytes] = {
    "empty": b"",
    "truncated header": len(HEADER).to_bytes(8, "little") + HEADER[:20],
    "header beyond the file": (2**62).to_bytes(8, "little") + HEADER,
    "not UTF-8": (4).to_bytes(8, "little") + b'{"\xff}',
    "data missing": len(HEADER).to_bytes(8, "little") + HEADER,
    "unknown dtype": (54).to_bytes(8, "little") + HEADER.replace(b"F32", b"F99") + b"0000",
    "overlap": (109).to_bytes(8, "little")
    + HEADER[:-1]
    + b","
    + HEADER[1:].replace(b'"a"', b'"b"')
    + b"  "
    + b"0000",
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("command", ["resize", "inspect"])
def test_a_malformed_file_is_named_with_the_reason(
    case: str, command: str, run: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.safetensors").write_bytes(BAD_FILES[case])
    words = ["--to", "96"] if command == "resize" else []
    done = run(command, "bad.safetensors", *words)
    assert done.code == 1
    assert done.err.startswith("error: bad.safetensors")
    assert os.listdir() == ["bad.safetensors"]  # noqa: PTH208


def test_a_missing_file_and_an_empty_folder_are_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("nowhere.safetensors", "./folder"):
        done = run(name, "--to", "96")
        assert done.code == 1
        assert name.removeprefix("./") in done.err


def test_an_unwritable_folder_is_named(
    run: Any, vit_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access  # asked about the folder it says no, as it would to anybody but root
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).is_file() and access(path, mode)
    )
    done = run("vit.safetensors", "--to", "96")
    assert done.code == 1
    assert "not writable" in done.err
    assert os.listdir() == ["vit.safetensors"]  # noqa: PTH208


def test_json_is_exactly_one_document_on_stdout(run: Any, vit_file: Path) -> None:
    done = run("vit.safetensors", "--to", "96x160", "--json")
    document = json.loads(done.out)
    assert done.err == ""
    assert document["schema"] == "resize-pos/report/1"
    assert document["version"] == __version__
    assert (document["status"], document["verdict"]) == ("resized", "ok")
    assert document["output"] == "vit-96x160.safetensors"
    assert document["copied"]["tensors"] == 5
    (table,) = document["tables"]
    assert table["from"] == {"grid": [4, 4], "rows": 17, "shape": [1, 17, 8]}
    assert table["to"] == {"grid": [6, 10], "rows": 61, "shape": [1, 61, 8]}
    assert (table["action"], table["family"], table["kind"]) == ("resize", "vit", "absolute")
    assert (table["method"], table["antialias"], table["convention"]) == ("bicubic", True, "timm")
    assert table["prefix"] == 1
    assert table["measures"]["prefix_change"] == 0
    assert {check["level"] for check in table["checks"]} == {"ok"}
    assert document["fine_tune"]["parameters"] == ["pos_embed"]
    assert len(document["sha256"]) == 64


def test_a_report_file_is_the_json_document(run: Any, vit_file: Path, tmp_path: Path) -> None:
    printed = json.loads(run("vit.safetensors", "--to", "96", "--json").out)
    run("vit.safetensors", "--to", "96", "-f", "--report", "r.json")
    written = json.loads((tmp_path / "r.json").read_text())
    for document in (printed, written):
        document.pop("seconds")
    assert printed == written


def test_a_dry_run_writes_nothing_and_says_that_it_would_need_force(
    run: Any, vit_file: Path
) -> None:
    done = run("vit.safetensors", "--to", "96", "-n")
    assert done.code == 0
    assert "would write vit-96.safetensors" in done.out
    assert os.listdir() == ["vit.safetensors"]  # noqa: PTH208
    run("vit.safetensors", "--to", "96")
    before = Path("vit-96.safetensors").read_bytes()
    again = run("vit.safetensors", "--to", "96", "-n")
    assert again.code == 0
    assert "it exists; pass --force to replace it" in again.out
    assert json.loads(run("vit.safetensors", "--to", "96", "-n", "--json").out)["needs_force"]
    assert "it exists" not in run("vit.safetensors", "--to", "96", "-n", "--force").out
    assert Path("vit-96.safetensors").read_bytes() == before


def test_a_same_size_request_says_so(run: Any, vit_file: Path) -> None:
    done = run("vit.safetensors", "--to", "64")
    assert done.code == 0
    assert "nothing to do" in done.out
    assert os.listdir() == ["vit.safetensors"]  # noqa: PTH208


def test_strict_turns_a_warning_into_code_3(run: Any, tmp_path: Path) -> None:
    tensors = vit(8, 12, channels=32)
    noise = np.random.default_rng(0).normal(size=(1, 97, 32)).astype(np.float32)  # untrained
    write_safetensors(tmp_path / "v.safetensors", tensors | {"pos_embed": noise})
    words = ("v.safetensors", "--from", "128x192", "--to", "96x160")
    assert run(*words, "-q").code == 0
    done = run(*words, "-f", "--strict")
    assert done.code == 3
    assert "verdict: " in done.out


def test_the_family_s_own_convention_is_named_where_it_differs(run: Any, tmp_path: Path) -> None:
    tensors = {f"embeddings.{name}": array for name, array in vit().items()}
    tensors["embeddings.position_embeddings"] = tensors.pop("embeddings.pos_embed")
    tensors["embeddings.patch_embeddings.projection.weight"] = tensors.pop(
        "embeddings.patch_embed.proj.weight"
    )
    write_safetensors(tmp_path / "hf.safetensors", tensors)
    assert "--like hf" in run("hf.safetensors", "--to", "96").out
    assert "--like" not in run("hf.safetensors", "--to", "96", "-f", "--like", "hf").out


def test_verbose_adds_evidence_and_measures(run: Any, vit_file: Path) -> None:
    done = run("vit.safetensors", "--to", "96", "-v")
    assert "patch_embed.proj.weight is a 16×16 kernel" in done.out
    assert "norm_ratio" in done.out


def test_inspect_shows_tables_evidence_and_near_misses(run: Any, tmp_path: Path) -> None:
    tensors = vit(2, 8) | {"decoder.my_pos_emb": vit()["pos_embed"]}
    write_safetensors(tmp_path / "v.safetensors", tensors)
    done = run("inspect", "v.safetensors")
    assert done.code == 0
    for words in ("safetensors, 7 tensors", "pos_embed", "F32 [1, 17, 8]", "4×4", "family vit"):
        assert words in done.out
    assert "not a table: decoder.my_pos_emb" in done.out
    assert "no family knows this name" in done.out


def test_inspect_explains_an_ambiguous_table_without_failing(run: Any, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "v.safetensors", vit(3, 7))
    done = run("inspect", "v.safetensors", "--json")
    assert done.code == 0
    (entry,) = json.loads(done.out)["unsettled"]
    assert "22 = 1 + 3×7" in entry["error"]
    assert "--from-grid" in entry["hint"]


def test_inspect_json_lists_the_tables(run: Any, vit_file: Path) -> None:
    document = json.loads(run("inspect", "vit.safetensors", "--json").out)
    assert document["schema"] == "resize-pos/inspection/1"
    (table,) = document["tables"]
    assert (table["name"], table["patch"], table["prefix"]) == ("pos_embed", [16, 16], 1)


def test_families_are_listed_with_their_source(run: Any) -> None:
    listed = json.loads(run("families", "--json").out)
    assert {"vit", "sam", "clip-vision"} <= {family["name"] for family in listed}
    text = run("families").out
    for family in listed:
        assert family["name"] in text


@pytest.mark.parametrize("command", [[], ["resize"], ["inspect"], ["families"]])
def test_help_leads_with_an_example(command: list[str], run: Any) -> None:
    done = run(*command, "--help")
    assert done.code == 0
    example = " ".join(["resize-pos", *(command if command != ["resize"] else [])])
    assert done.out.split("Options:")[0].count(example) >= 2


def test_version(run: Any) -> None:
    assert run("--version").out == f"resize-pos {__version__}\n"


def completions(words: str, index: int, cwd: Path) -> list[str]:
    environment = os.environ | {
        "_RESIZE_POS_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(index),
    }
    script = "from resize_pos.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_shell_completion_knows_commands_options_and_choices(vit_file: Path) -> None:
    assert "plain,inspect" in completions("resize-pos ins", 1, vit_file.parent)
    found = completions("resize-pos vit.safetensors --to-", 2, vit_file.parent)
    assert "plain,--to-grid" in found
    assert "plain,torchvision" in completions(
        "resize-pos vit.safetensors --like tor", 3, vit_file.parent
    )


def test_a_reader_that_goes_away_is_no_error(vit_file: Path) -> None:
    command = f"{sys.executable} -m resize_pos families | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_colour_reaches_a_pipe(vit_file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "resize_pos", str(vit_file), "--to", "96"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in done.stdout


def test_a_narrow_terminal_does_not_break_a_path(run: Any, tmp_path: Path) -> None:
    name = "a" * 120 + ".safetensors"
    write_safetensors(tmp_path / name, vit())
    assert f"{'a' * 120}-96.safetensors\n" in run(name, "--to", "96").out
    assert raw_tensors(tmp_path / f"{'a' * 120}-96.safetensors")
