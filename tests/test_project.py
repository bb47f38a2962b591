"""Tests of the project as a whole: what it imports, what it exports, what it promises."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import optkit
import summaries

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules(package):
    """The dotted names of all modules of a package, found as files, so that none is imported."""
    folder = Path(package.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [*modules(optkit), *modules(summaries)]

OPTIONAL = (
    "IPython",
    "cupy",
    "cupyx",
    "matplotlib",
    "ml_dtypes",
    "numba",
    "pandas",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorboard",
    "torch",
)

# For the import system these packages are not installed: neither import nor find_spec sees them.
WITHOUT_OPTIONAL = f"""
import importlib
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec


def find_other_spec(name, path=None, target=None):
    if name.partition(".")[0] in {OPTIONAL!r}:
        return None
    return find_spec(name, path, target)


PathFinder.find_spec = find_other_spec
"""


def run_python(code, *arguments):
    """Run code in a fresh interpreter at the root of the project and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_module_imports_without_the_optional_packages():
    code = WITHOUT_OPTIONAL + (
        "import sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    print(name)\n"
    )
    assert run_python(code, *MODULES) == MODULES


@pytest.mark.parametrize("name", ["sklearn", "tensorboard"])
def test_the_optional_packages_are_hidden_where_they_are_installed(name):
    look = f"import importlib.util\nprint(importlib.util.find_spec({name!r}) is None)\n"
    assert run_python(look) == ["False"]
    assert run_python(WITHOUT_OPTIONAL + look) == ["True"]


def test_import_optkit_leaves_heavy_packages_alone():
    heavy = {*OPTIONAL, "tensorboardX", "tensorflow", "tqdm", "typer"}
    code = "import sys\nbefore = {*sys.modules}\nimport optkit\nprint(*({*sys.modules} - before))\n"
    loaded = {name.partition(".")[0] for name in run_python(code)}
    assert "optkit" in loaded
    assert loaded & heavy == set()


def test_version_is_the_one_of_the_distribution():
    assert optkit.__version__ == PYPROJECT["project"]["version"]


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exist_once(name):
    module = importlib.import_module(name)
    public = getattr(module, "__all__", ())
    assert len(public) == len(set(public))
    assert [each for each in public if not hasattr(module, each)] == []


def public_order(name):
    """Sort as ruff's RUF022 does: CONSTANTS, then Classes, then the rest; numbers by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


@pytest.mark.parametrize("package", [optkit, summaries], ids=lambda package: package.__name__)
def test_all_is_sorted(package):
    assert package.__all__, "the public surface is a list"
    assert list(package.__all__) == sorted(package.__all__, key=public_order)


def test_ci_runs_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("python -m pip install -e '.[test]'", "python -m pytest"):
        assert any(command in line for line in readme)
        assert re.search(rf"{re.escape(command)}$", steps, re.MULTILINE)
