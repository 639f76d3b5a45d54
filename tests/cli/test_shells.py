"""Tab completion in the shells themselves: the line of the README, then a word and TAB."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.builders import vit, write_safetensors

ROOT = Path(__file__).parents[2]
(LINES,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
# How each shell starts without the files of the user, and what loads its own completion.
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D"),
    "fish": (["fish", "--no-config", "--interactive"], ""),
}
PATIENCE = 120.0  # seconds, on a machine that is busy


class Screen:
    """A shell on a pseudo-terminal."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._parent, child = pty.openpty()
        self._shown = b""
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # fish asks for it
        )
        os.close(child)

    def type(self, keys: str) -> None:
        os.write(self._parent, keys.encode())

    def wait_for(self, words: str) -> None:
        """Read until the words are shown; fish asks the terminal what it is, and waits."""
        end = time.monotonic() + PATIENCE
        while words not in self._shown.decode(errors="replace"):
            assert time.monotonic() < end, self._shown.decode(errors="replace")
            if select.select([self._parent], [], [], 1.0)[0]:
                part = os.read(self._parent, 1 << 16)
                self._shown += part
                if b"\x1b[c" in part or b"\x1b[0c" in part:
                    self.type("\x1b[?62;c")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._parent)


@pytest.mark.parametrize("shell", START)
def test_a_file_is_completed(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on the PATH")
    write_safetensors(tmp_path / "vit_of_a_test.safetensors", vit())
    program = tmp_path / "bin" / "resize-pos"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m resize_pos "$@"\n')
    program.chmod(0o755)
    words, before = START[shell]
    (line,) = [each for each in LINES.splitlines() if f"={shell}_source" in each]
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "PS1": "$ ",
    }
    screen = Screen(words, tmp_path, environment)
    try:
        screen.type(f"{before}\n{line.partition('  #')[0].strip()}; echo rea''dy\n")
        screen.wait_for("ready")
        screen.type("resize-pos inspect vit_of\t")
        screen.wait_for("vit_of_a_test.safetensors")
    finally:
        screen.close()
