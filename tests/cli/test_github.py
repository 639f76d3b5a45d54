"""`--format github`: annotations that survive any text, and the step summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from resize_pos.cli.app import main
from resize_pos.cli.github import annotation
from tests.support.builders import vit, write_safetensors

# level, message, file, title → the line
LINES: dict[str, tuple[tuple[str, str, Path | None, str], str]] = {
    "plain": (("ok", "fits", None, ""), "::notice::fits"),
    "file": (("warn", "norms fall", Path("a/b.pt"), ""), "::warning file=a/b.pt::norms fall"),
    "percent": (("fail", "13% : a, b", None, "t"), "::error title=t::13%25 : a, b"),
    "lines": (("fail", "a\r\nb\n", None, ""), "::error::a%0D%0Ab%0A"),
    "an injected command": (
        ("warn", "x\n::set-output name=a::b", None, ""),
        "::warning::x%0A::set-output name=a::b",
    ),
    "a hostile name": (
        ("warn", "x", Path("a,title=b::c%0A.pt"), "k: v"),
        "::warning file=a%2Ctitle=b%3A%3Ac%250A.pt,title=k%3A v::x",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_an_annotation_is_one_line_whatever_it_says(case: str) -> None:
    (level, message, file, title), line = LINES[case]
    assert annotation(level, message, file=file, title=title) == line
    assert "\n" not in line


Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run with a step summary; give the code, the lines printed, and the summary."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    write_safetensors(Path("vit.safetensors"), vit())

    def call(*words: str) -> tuple[int, list[str], str]:
        with pytest.raises(SystemExit) as caught:
            main([*words, "--format", "github"])
        assert isinstance(caught.value.code, int)
        summary = Path("summary.md")
        text = summary.read_text(encoding="utf-8") if summary.exists() else ""
        return caught.value.code, capfd.readouterr().out.splitlines(), text

    return call


def test_a_sound_result_is_a_notice_and_the_summary_has_the_report(run: Run) -> None:
    code, lines, summary = run("vit.safetensors", "--to", "96x128")
    assert code == 0
    assert lines[-1].startswith("::notice file=vit.safetensors,title=resize-pos::resized: ")
    assert "4×4 → 6×8" in summary


def test_a_limit_that_is_passed_is_an_error(run: Run) -> None:
    code, lines, _ = run("vit.safetensors", "--to", "96x128", "--max", "norm_change=0.0001")
    assert code == 3
    assert any(line.startswith("::error file=vit.safetensors") for line in lines)


def test_what_cannot_be_done_is_an_error_with_its_hint(run: Run) -> None:
    code, lines, summary = run("vit.safetensors", "--from", "64", "--to", "100")
    assert code == 1
    (line,) = lines
    assert line.startswith("::error file=vit.safetensors,title=resize-pos::vit.safetensors: ")
    assert summary == ""


def test_the_summary_is_appended_to(run: Run) -> None:
    Path("summary.md").write_text("# before\n", encoding="utf-8")
    run("vit.safetensors", "--to", "96x128")
    _, _, summary = run("vit.safetensors", "--to", "64x96")
    assert summary.startswith("# before\n")
    assert summary.count("| made by | resize-pos") == 2


def test_without_a_summary_file_only_annotations_are_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    code, lines, summary = run("vit.safetensors", "--to", "96x128")
    assert (code, len(lines), summary) == (0, 1, "")


def test_a_batch_annotates_every_failure_and_its_sum(run: Run) -> None:
    Path("broken.safetensors").write_bytes(b"<html>")
    code, lines, summary = run("batch", "*.safetensors", "--to", "96x128", "-o", "out", "-j", "1")
    assert code == 1
    assert lines[0].startswith("::error file=broken.safetensors,title=resize-pos::")
    assert lines[1] == "::notice title=resize-pos batch::1 done, 1 failed."
    assert "| `broken.safetensors` | failed |" in summary
