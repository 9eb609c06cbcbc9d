"""The examples of docs/python.md run, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

import forebay
from tests.daemon import PATIENCE, Daemon

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own
def test_page(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_SOCKET", daemon.socket)
    text = PAGE.read_text()
    examples = list(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S))
    assert len(examples) > 5
    scope: dict[str, Any] = {}
    try:
        for e in examples:
            # Blank lines before it, so that errors name the page's line.
            source = "\n" * text.count("\n", 0, e.start(1)) + e[1]
            exec(compile(source, str(PAGE), "exec"), scope)
    finally:
        fsspec.filesystem("bb").client.close()
        if "client" in scope:
            scope["client"].close()
        with forebay.connect(daemon.socket) as c:
            c.destroy_buffer("ckpt", discard=True)


def test_readme(daemon: Daemon, client: forebay.Client, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_SOCKET", daemon.socket)
    (example,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    client.create_buffer("ckpt", f"file://{store}")
    scope: dict[str, Any] = {}
    exec(compile(example, str(README), "exec"), scope)
    scope["buffer"].client.close()
    assert (store / "run1/step-10/part-0").exists()
    client.destroy_buffer("ckpt")


def test_training_of_page(daemon: Daemon, tmp_path: Path) -> None:
    """The loop is killed, and later the daemon with it. Its result is that of one that was not."""
    (source,) = re.findall(r"^```python train\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    script, held = tmp_path / "train.py", tmp_path / "held.py"
    script.write_text(source)
    # It waits at a step, to be killed there.
    wait = "    if step == int(sys.argv[2]):\n        print('held', flush=True)\n        time.sleep(3600)\n"
    assert source.count("    step += 1\n") == 1
    held.write_text(source.replace("    step += 1\n", wait + "    step += 1\n"))
    env = dict(os.environ, FOREBAY_SOCKET=daemon.socket)

    def train() -> list[str]:
        line = [sys.executable, str(script), "run"]
        p = subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return p.stdout.splitlines()

    def train_until(step: int) -> tuple[subprocess.Popen[str], str]:
        line = [sys.executable, str(held), "run", str(step)]
        p = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True)
        assert p.stdout is not None
        begin = p.stdout.readline()
        assert p.stdout.readline() == "held\n"
        return p, begin

    with forebay.connect(daemon.socket) as c:
        c.create_buffer("ckpt")
        begin, blocked, want = train()
        assert begin == "begins after step 0"
        assert float(blocked.split()[1]) > 0
        c.buffer("ckpt").rmtree("run")

        p, begin = train_until(25)
        assert begin == "begins after step 0\n"
        p.kill()
        p.communicate()
        p, begin = train_until(60)
        assert begin == "begins after step 20\n"
        p.kill()
        p.communicate()
        daemon.kill()
        daemon.start()
        begin, _, got = train()
        assert begin == "begins after step 60"
        assert got == want
        c.destroy_buffer("ckpt", discard=True)
