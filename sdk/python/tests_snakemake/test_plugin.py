"""The suite of Snakemake's interface, and a workflow, against a real daemon."""

from __future__ import annotations

import os
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
from tests.daemon import Daemon


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


def test_workflow(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    line = [sys.executable, "-m", "snakemake", "--cores", "2"]
    env = {**os.environ, "HOME": str(tmp_path)}

    def run() -> str:
        p = subprocess.run(
            line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert p.returncode == 0, p.stdout + p.stderr
        return p.stdout + p.stderr

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
