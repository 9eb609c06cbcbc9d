"""Tokens, cluster keys, and the proofs that a client and a daemon exchange over TCP."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from . import _wire
from ._errors import Invalid, NotFound, PermissionDenied

NONCE = 32

_SECRET = 32
_MAX_PROOFS = 16
_MAX_FILE = 64 << 10
_MIN_KEY = 32
_MAX_KEYS = 4
_TEXT = "forebay-token-1."
_CLAIMS = struct.Struct("<BIIqq16s")  # internal/wire/token.go draws it


@dataclass(frozen=True)
class Token:
    """Lets a client that comes over TCP into one buffer, as the buffer's owner, until it expires.

    Every holder can use it, so keep it as secret as a key.

    Attributes:
        claims: its content, which a client sends.
    """

    claims: bytes
    _secret: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read the text that ``bbctl token`` writes. White space around it does not count."""
        text = text.strip()
        try:
            if not text.startswith(_TEXT):
                raise ValueError
            encoded = text[len(_TEXT) :]
            every = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (ValueError, binascii.Error):
            every = b""
        return cls._of(every)

    @classmethod
    def _of(cls, every: bytes) -> Token:
        claims, secret = every[:-_SECRET], every[-_SECRET:]
        if len(claims) < _CLAIMS.size or claims[0] != 1:
            raise Invalid(
                "token",
                "",
                "it is not a token of a version that this release supports",
                "make one: bbctl token BUFFER",
            )
        return cls(claims, secret)

    @property
    def text(self) -> str:
        """The token's text, which ``parse`` reads."""
        return _TEXT + base64.urlsafe_b64encode(self.claims + self._secret).decode().rstrip("=")

    @property
    def buffer(self) -> str:
        """The name of the buffer that the token lets into."""
        return self.claims[_CLAIMS.size :].decode()

    @property
    def expires(self) -> datetime:
        """When the token ends, and the sessions that began with it."""
        ns: int = _CLAIMS.unpack_from(self.claims)[3]
        return datetime.fromtimestamp(ns / 1e9, UTC)


@dataclass(frozen=True)
class Secrets:
    """A client's secrets for TCP: keys, or a token, whose secret is the only key then."""

    keys: list[bytes] = field(default_factory=list, repr=False)
    token: Token | None = None

    @classmethod
    def read(
        cls,
        token: Token | str | None,
        token_file: str | os.PathLike[str] | None,
        key_file: str | os.PathLike[str] | None,
    ) -> Secrets:
        """Take a token, else the files that are given, else those that the environment names."""
        if token is not None:
            return cls._of(Token.parse(token) if isinstance(token, str) else token)
        token_path = token_file or os.environ.get("FOREBAY_TOKEN_FILE")
        if token_path:
            return cls._of(Token.parse(read_secret(token_path)))
        key_path = key_file or os.environ.get("FOREBAY_KEY_FILE")
        return cls(_read_keys(key_path)) if key_path else cls()

    @classmethod
    def _of(cls, token: Token) -> Secrets:
        return cls([token._secret], token)


def read_secret(file: str | os.PathLike[str]) -> str:
    """Read a file that only its owner may be able to read."""
    path = Path(file)
    try:
        with path.open("rb") as f:
            info = os.fstat(f.fileno())
            if stat.S_IMODE(info.st_mode) & 0o077:
                raise PermissionDenied(
                    "read secret",
                    str(path),
                    "other users can read it or change it",
                    f"chmod 600 {path}",
                )
            if info.st_size > _MAX_FILE:
                raise Invalid("read secret", str(path), "it is too large")
            return f.read(_MAX_FILE).decode()
    except FileNotFoundError as e:
        raise NotFound("read secret", str(path), "it is not there") from e


def _read_keys(file: str | os.PathLike[str]) -> list[bytes]:
    lines = (line.strip() for line in read_secret(file).splitlines())
    keys = [line.encode() for line in lines if line and not line.startswith("#")]
    remedy = "make one: bbctl cluster init DIR"
    if any(len(k) < _MIN_KEY for k in keys):
        raise Invalid("cluster key", str(file), f"a key has fewer than {_MIN_KEY} characters", remedy)
    if not 1 <= len(keys) <= _MAX_KEYS:
        reason = f"the file holds {len(keys)} keys, not 1 to {_MAX_KEYS}"
        raise Invalid("cluster key", str(file), reason, remedy)
    return keys


@dataclass(frozen=True)
class Exchange:
    """Both nonces of a handshake, over which proofs are made."""

    client: bytes
    daemon: bytes

    def _proof(self, key: bytes, role: str, hello: _wire.Hello | None) -> bytes:
        """HMAC-SHA-256 (RFC 2104) over fields, each preceded by its length (Prove in forebay.proto)."""
        fields = [f"forebay session 2 {role}".encode(), self.client, self.daemon, b""]
        if hello is not None:
            who = struct.pack(
                "<IIIIQ",
                hello.uid,
                hello.gid,
                hello.min_version,
                hello.max_version,
                hello.instance,
            )
            fields += [who, hello.node.encode(), hello.token]
        mac = hmac.new(key, digestmod=hashlib.sha256)
        for f in fields:
            mac.update(struct.pack("<I", len(f)))
            mac.update(f)
        return mac.digest()

    def common(self, theirs: bytes, keys: list[bytes]) -> bytes | None:
        """Return the first of our keys that the daemon has proven."""
        size = hashlib.sha256().digest_size
        if len(theirs) > _MAX_PROOFS * size or len(self.daemon) != NONCE:
            return None
        for key in keys:
            mine = self._proof(key, "daemon", None)
            for at in range(0, len(theirs) - size + 1, size):
                if hmac.compare_digest(mine, theirs[at : at + size]):
                    return key
        return None

    def prove(self, key: bytes, hello: _wire.Hello) -> bytes:
        """Prove a key, bound to all claims that decide the client's rights."""
        return self._proof(key, "client", hello)
