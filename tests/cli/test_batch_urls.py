"""URLs that a batch cannot search or write to are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from resize_pos.cli.app import main

REFUSED = {
    "a web server": (["https://x/y/", "-o", "out"], "a web server does not list its files"),
    "a page": (["https://x/y", "-o", "out"], "a web server does not list its files"),
    "the zoo itself": (["s3://zoo/vit/", "-o", "s3://zoo/vit"], "is the source folder itself"),
    "to the web": (["zoo", "-o", "https://x/y"], "to a folder of this machine or to s3://"),
    "to Google": (["zoo", "-o", "gs://x/y"], "to a folder of this machine or to s3://"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_url_is_refused(
    case: str,
    tmp_path: Path,
    vit_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, expected = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    vit_file.rename("zoo/vit.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["batch", *words, "--to", "384"])
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["zoo"]
