"""The training loop of the demo loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.daemon import BIN


def test_training() -> None:
    script = Path(__file__).parents[1] / "demo" / "training.py"
    line = [sys.executable, str(script), "--steps", "30", "--mib", "1"]
    env = dict(os.environ, FOREBAY_BIN=str(BIN))
    p = subprocess.run(line, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    assert "bit by bit" in p.stdout
