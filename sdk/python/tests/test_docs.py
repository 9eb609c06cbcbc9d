"""The examples of docs/python.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fsspec
import pytest

import forebay
from tests.daemon import Daemon

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


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
