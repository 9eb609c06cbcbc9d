"""The suite of Snakemake's interface, and a workflow, against a real daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_provider import StorageProviderBase
from snakemake_interface_storage_plugins.tests import TestStorageBase
from snakemake_storage_plugin_forebay import StorageProvider, StorageProviderSettings

import forebay
from tests.daemon import ROOT, Daemon


@pytest.fixture(scope="module", autouse=True)
def daemon() -> Iterator[Daemon]:
    d = Daemon()
    os.environ["FOREBAY_SOCKET"] = d.socket
    with forebay.connect() as c:
        c.create_buffer("smk")
    yield d
    d.remove()


class TestStorage(TestStorageBase):  # type: ignore[misc]
    __test__ = True
    touch = True
    files_only = False

    def get_query(self, tmp_path: Path) -> str:
        return "bb://smk/results/sample 1.txt"

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return "bb://smk/results/missing/file"

    def get_storage_provider_cls(self) -> type[StorageProviderBase]:
        return StorageProvider

    def get_storage_provider_settings(self) -> StorageProviderSettingsBase | None:
        return StorageProviderSettings()


@pytest.mark.parametrize("query", ["s3://b/f", "bb://", "bb://smk", "bb://smk/", "results/f"])
def test_invalid(query: str) -> None:
    assert not StorageProvider.is_valid_query(query)


WORKFLOW = """
storage:
    provider="forebay"

rule all:
    input: storage.forebay("bb://smk/out/sum.txt")

rule make:
    output: storage.forebay("bb://smk/out/{n}.txt")
    shell: "echo {wildcards.n} > {output}"

rule folder:
    output: storage.forebay("bb://smk/out/folder")
    shell: "mkdir -p {output}/below && echo 7 > {output}/below/seven.txt"

rule sum:
    input:
        [storage.forebay(f"bb://smk/out/{n}.txt") for n in (1, 2, 3)],
        storage.forebay("bb://smk/out/folder")
    output: storage.forebay("bb://smk/out/sum.txt")
    shell: "cat {input[0]} {input[1]} {input[2]} {input[3]}/below/seven.txt | paste -sd+ > {output}"
"""


def snakemake(folder: Path, *targets: str) -> str:
    """Run the workflow of a folder, and return Snakemake's output."""
    line = [sys.executable, "-m", "snakemake", "--cores", "2", *targets]
    env = {**os.environ, "HOME": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}
    p = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout + p.stderr


def test_page(tmp_path: Path) -> None:
    """The example of docs/python.md runs."""
    page = (ROOT / "docs" / "python.md").read_text()
    (example,) = re.findall(r"^```\n(storage:\n.*?)^```", page, re.M | re.S)
    wanted = 'rule all:\n    input: storage.forebay("bb://scratch/one/reads.bam")\n'
    (tmp_path / "Snakefile").write_text(f"{example}\n{wanted}")
    align = tmp_path / "align"
    align.write_text("#!/bin/sh\ntr acgt ACGT <$1\n")
    align.chmod(0o755)
    with forebay.connect() as c:
        c.create_buffer("scratch")
        buffer = c.buffer("scratch")
        buffer.makedirs("one")
        buffer.write_bytes("one/reads.fq", b"gattaca\n")
        snakemake(tmp_path, "all")
        assert buffer.read_bytes("one/reads.bam") == b"GATTACA\n"


def test_workflow(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(WORKFLOW)

    def run() -> str:
        return snakemake(tmp_path)

    run()
    with forebay.connect() as c:
        buffer = c.buffer("smk")
        assert buffer.read_bytes("out/sum.txt") == b"1+2+3+7\n"
        assert buffer.read_bytes("out/folder/below/seven.txt") == b"7\n"
        assert "Nothing to be done" in run()
        for name in ("out/2.txt", "out/sum.txt"):
            buffer.remove(name)
        run()
        assert buffer.read_bytes("out/2.txt") == b"2\n"
        assert buffer.read_bytes("out/sum.txt") == b"1+2+3+7\n"
