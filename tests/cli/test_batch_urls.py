"""A batch works on local folders; a URL is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from resize_pos.cli.app import main


@pytest.mark.parametrize(
    "words", [["s3://zoo/", "-o", "out"], ["zoo", "-o", "s3://out/"], ["https://x/y", "-o", "out"]]
)
def test_a_url_is_refused(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["batch", *words, "--to", "384"])
    assert ended.value.code == 2
    assert "folders of this machine" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["zoo"]
