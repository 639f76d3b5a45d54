"""Every place in the package that could execute something, each with the reason why it may stay."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from jinja2 import TemplateNotFound
from jinja2.exceptions import SecurityError

from resize_pos.core.errors import UsageError
from resize_pos.report.html import _environment
from resize_pos.verify.models import ModelSpec

PACKAGE = Path(__file__).parents[2] / "resize_pos"

MODULES = {
    "pickle",
    "pickletools",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "copyreg",
    "importlib",
    "runpy",
    "code",
    "codeop",
    "subprocess",
    "ctypes",
    "yaml",
    "pty",
}
BUILTINS = {"exec", "eval", "compile", "__import__", "breakpoint"}
ATTRIBUTES = {
    "literal_eval",
    "system",
    "popen",
    "import_module",
    "load",
    "load_state_dict",
    "from_pretrained",
    "execv",
    "execve",
    "spawnv",
    "fromfile",
    "memmap",
}

REASONS = {
    ("__init__.py", "import_module"): "loads our own modules by a fixed table when first used",
    ("cli/app.py", "import_module"): "loads our own commands by a fixed table",
    ("containers/detect.py", "import_module"): "loads our own formats by a fixed table",
    ("containers/remote/store.py", "import_module"): "loads our own stores by a fixed table",
    ("containers/hub_files.py", "import_module"): "loads huggingface_hub, named in the code",
    ("core/memory.py", "ctypes"): "calls mallopt of the C library with two numbers of our own",
    ("containers/io/rename.py", "ctypes"): "calls renameat2 of the C library with our own paths",
    ("containers/pickle/opcodes.py", "pickletools"): "decodes opcodes; it builds and calls nothing",
    ("core/fast_dataclass.py", "exec"): "compiles constructors from the names of our own fields",
    ("planning/rules/base.py", "import_module"): "loads our own rules by names in the code",
    ("report/html.py", "importlib"): "reads our own templates as package data",
    ("run/in_memory.py", "from_pretrained"): "renames tensors that we have read, for a given model",
    ("verify/models.py", "import_module"): "loads our own modules by a fixed table",
    ("verify/models.py", "literal_eval"): "reads --model-arg of the command line: literals only",
    ("verify/models.py", "load_state_dict"): "fills a model with arrays that we have read",
    ("verify/transformers.py", "from_pretrained"): (
        "reads config.json of a local folder, without its code; the weights are read by us"
    ),
}


def doors(path: Path) -> Iterator[str]:
    """Name every door in one module."""
    aliases: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = {alias.name.split(".")[0] for alias in node.names} & MODULES
            yield from found
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            names = {alias.name for alias in node.names}
            aliases |= {alias.asname for alias in node.names if alias.asname}
            if module in MODULES:
                yield "import_module" if names == {"import_module"} else module
            if module in ("os", "ast", "numpy", "torch"):
                yield from names & ATTRIBUTES
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield node.attr


def test_every_door_that_can_execute_is_known() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), door)
        for path in PACKAGE.rglob("*.py")
        for door in doors(path)
    }
    assert found == set(REASONS)


def test_the_search_finds_doors(tmp_path: Path) -> None:
    text = (
        "import pickle\nimport os\nfrom os import system\nfrom ast import literal_eval as read\n"
        "import torch, numpy as np\nrun = eval\ntorch.load('x')\nnp.load('x')\nos.popen('x')\n"
    )
    (tmp_path / "x.py").write_text(text)
    assert set(doors(tmp_path / "x.py")) == {
        *("pickle", "system", "literal_eval", "eval", "load", "popen")
    }


def test_the_lower_bounds_are_releases_that_load_weights_only() -> None:
    """torch up to 2.9 has CVE-2026-24747; timm up to 1.0.25 loads with weights_only=False."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    bounds = dict(each.split(">=") for each in project["project"]["dependencies"])
    assert _release(bounds["torch"]) >= (2, 10)
    assert _release(bounds["timm"]) >= (1, 0, 26)
    for loader in (timm.models.load_checkpoint, timm.models.load_state_dict):
        assert inspect.signature(loader).parameters["weights_only"].default is True
    assert inspect.signature(torch.load).parameters["weights_only"].default is not False


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", ["checkpoint_path", "pretrained", "pretrained_cfg"])
def test_no_argument_makes_timm_load_a_file(name: str) -> None:
    with pytest.raises(UsageError, match=f"--model-arg {name}"):
        ModelSpec.parse("timm:vit_tiny_patch16_224", [f"{name}=evil.pth"])


def test_templates_load_no_other_file_and_run_in_the_sandbox() -> None:
    environment = _environment()
    for name in ("/etc/passwd", "../html.py", "missing.html"):
        with pytest.raises(TemplateNotFound):
            environment.get_template(name)
    for text in ("{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}"):
        with pytest.raises(SecurityError):
            environment.from_string(text).render()
