"""The wheel: its content, and its types in a program that is checked by mypy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import forebay

HERE = Path(__file__).parents[1]

PROGRAM = """\
import forebay
from forebay import aio, checkpoint

size: int = forebay.connect().buffer("b").stat("f").size
step: int | None = checkpoint.step_of("step-1")
"""


def build(folder: Path, into: Path) -> Path:
    """Build the wheel of a copy of a package's sources."""
    source = into / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(folder / name, source)
    shutil.copytree(
        folder / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    line = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(into), str(source)]
    p = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(HERE, tmp_path_factory.mktemp("wheel"))


def test_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as z:
        held = {Path(n) for n in z.namelist() if ".dist-info" not in n}
        (entry_points,) = (z.read(n).decode() for n in z.namelist() if n.endswith("entry_points.txt"))
        (metadata,) = (z.read(n).decode() for n in z.namelist() if n.endswith("METADATA"))
    assert wheel.name.endswith("-py3-none-any.whl")
    sources = {p.relative_to(HERE / "src") for p in (HERE / "src/forebay").iterdir() if p.is_file()}
    assert held == sources
    assert Path("forebay/py.typed") in held
    assert "bb = forebay.fsspec:ForebayFileSystem" in entry_points
    assert "Requires-Python: >=3.11" in metadata
    for extra in ("crt", "fsspec", "torch"):
        assert f"Provides-Extra: {extra}" in metadata


def test_plugin(tmp_path: Path) -> None:
    with zipfile.ZipFile(build(HERE / "snakemake-plugin", tmp_path)) as z:
        assert "snakemake_storage_plugin_forebay/__init__.py" in z.namelist()


def test_types_of_an_installed_package(wheel: Path, tmp_path: Path) -> None:
    """mypy --strict finds the types of the installed package, and a wrong use of them."""
    env = tmp_path / "env"
    venv.create(env)
    (site,) = env.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as z:
        z.extractall(site)
    line = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", ""]
    line += ["--cache-dir", str(tmp_path / "cache"), "--python-executable", str(env / "bin/python"), "p.py"]

    def check(program: str) -> str:
        (tmp_path / "p.py").write_text(program)
        p = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert not p.stderr
        return p.stdout

    assert check(PROGRAM) == ""
    assert 'expected "str"' in check(PROGRAM + "forebay.connect().buffer(1)\n")


def test_nothing_optional_is_imported() -> None:
    """The package needs numpy and protobuf alone until one of its other modules is imported."""
    program = "import sys, forebay, forebay.checkpoint, forebay.aio, forebay.safetensors\nprint(*sys.modules)"
    p = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"fsspec", "torch", "pandas", "multistorageclient"} & set(p.stdout.split())
    assert forebay.__doc__
