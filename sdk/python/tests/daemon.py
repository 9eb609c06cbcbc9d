"""A real bbd, which can be killed and started again."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
BIN = Path(os.environ.get("FOREBAY_BIN", ROOT / "bin"))
ENGINE = os.environ.get("FOREBAY_TEST_ENGINE", "")  # how namespaces are kept
PATIENCE = 120.0


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens at."""
    with socket.create_server((host, 0)) as s:
        port: int = s.getsockname()[1]
        return port


class Daemon:
    """Runs with a folder and memory of its own, which remove takes away.

    Attributes:
        program: the started program. If it is changed, the next start takes the new one.
    """

    def __init__(
        self,
        *args: str,
        memory: str = "256MiB",
        disk: str = "1GiB",
        program: Path = BIN / "bbd",
        env: Mapping[str, str] | None = None,
    ) -> None:
        # A unix socket's path has at most 107 bytes.
        self.dir = Path(tempfile.mkdtemp(prefix="bbdpy", dir="/tmp"))
        self.memory = Path(tempfile.mkdtemp(prefix="bbdpy", dir="/dev/shm"))
        self.key_file = self.dir / "test.key"
        self.key_file.touch(0o600)
        self.key_file.write_text("0123456789abcdef" * 4 + "\n")
        self.port = free_port()
        self.program = program
        self._env = dict(env or {})
        self._args = ["--memory", memory, *args]
        if disk != "0":
            self._args += ["--disk-dir", str(self.dir / "disk"), "--disk-size", disk]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def socket_path(self) -> Path:
        return self.dir / "bbd" / "bbd.sock"

    @property
    def socket(self) -> str:
        """Where it listens on this machine."""
        return f"unix://{self.socket_path}"

    @property
    def tcp(self) -> str:
        """Where it listens for clients elsewhere."""
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, if it does not run, and wait until it serves."""
        if self._process is not None and self._process.poll() is None:
            return
        line: list[str] = [str(self.program), "--dev", "--dir", str(self.dir / "bbd"), *self._args]
        line += ["--memory-mount", "off", "--memory-dir", str(self.memory)]
        line += ["--listen-tcp", f"127.0.0.1:{self.port}", "--key-file", str(self.key_file)]
        log = self.dir / "bbd.log"
        env = dict(os.environ)
        if ENGINE:
            env["FOREBAY_NAMESPACE_ENGINE"] = ENGINE
        env |= self._env
        with log.open("ab") as out:
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
        deadline = time.monotonic() + PATIENCE
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"bbd does not serve:\n{log.read_text()}")
            time.sleep(0.005)

    def _serves(self) -> bool:
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(str(self.socket_path))
            except OSError:
                return False
            return True

    def has_log(self, buffer: str) -> bool:
        """Whether the namespace of a buffer is a log."""
        return any((self.dir / "bbd").rglob(f"NS_forebay-{buffer}-*"))

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def bbctl(self, *args: str) -> str:
        """Run bbctl and return its output."""
        line = [str(BIN / "bbctl"), "--socket", str(self.socket_path), *args]
        p = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if p.returncode:
            raise RuntimeError(f"{line} failed:\n{p.stdout}{p.stderr}")
        return p.stdout

    def remove(self) -> None:
        """End it, and take its folders away."""
        self.kill()
        shutil.rmtree(self.dir)
        shutil.rmtree(self.memory)


@contextmanager
def cluster(*nodes: str) -> Iterator[list[Daemon]]:
    """Run daemons of one cluster, beside one more whose server has their namespace."""
    nats = f"127.0.0.1:{free_port()}"
    gossip = [f"127.0.0.1:{free_port()}" for _ in nodes]
    with ExitStack() as stack:
        server = Daemon(memory="64MiB", disk="0", env={"FOREBAY_NATS_EMBEDDED_LISTEN": nats})
        stack.callback(server.remove)
        env = {"FOREBAY_NATS_URL": f"nats://{nats}"}
        daemons = []
        for node, listen in zip(nodes, gossip, strict=True):
            args = ["--name", node, "--cluster-listen", listen, "--cluster-join", ",".join(gossip)]
            daemons.append(Daemon(*args, env=env))
            stack.callback(daemons[-1].remove)
        deadline = time.monotonic() + PATIENCE
        for d in daemons:
            while [n["state"] for n in json.loads(d.bbctl("nodes", "--json"))] != ["ready"] * len(nodes):
                assert time.monotonic() < deadline, "the daemons do not find each other"
                time.sleep(0.02)
        yield daemons


def older_daemon(folder: Path) -> Path:
    """Build bbd as a release of it that speaks version 1 of the protocol alone, and return the program."""
    edits = {
        "internal/wire/version.go": ("MaxVersion", "1"),
        "meta/kv/codec.go": ("NewestFormat", "FormatFirst"),
    }
    replace = {}
    for name, (constant, value) in edits.items():
        text, n = re.subn(
            rf"^(\t{constant} +=) .*$", rf"\1 {value}", (ROOT / name).read_text(), flags=re.MULTILINE
        )
        assert n == 1, f"{name} does not declare {constant} any more"
        changed = folder / Path(name).name
        changed.write_text(text)
        replace[str(ROOT / name)] = str(changed)
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": replace}))
    program = folder / "bbd"
    line = ["go", "build", "-overlay", str(overlay), "-o", str(program), "./cmd/bbd"]
    p = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert p.returncode == 0, p.stderr
    return program
