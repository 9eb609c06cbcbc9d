"""Opens sessions with the daemon that an address names."""

from __future__ import annotations

import os
import secrets as random
import socket
import ssl
import stat
import sys
import time
from dataclasses import dataclass, field

from . import _frames, _scope, _wire
from ._errors import Error, Invalid, PermissionDenied, Unavailable, Unsupported, from_wire
from ._repeat import MAX_VERSION, MIN_VERSION
from ._session import Session
from ._token import NONCE, Exchange, Secrets

_HANDSHAKE_SECONDS = 10.0
_CONNECTION = 16  # bytes of Hello.connection
_FIRST_PAUSE = 0.005
_LAST_PAUSE = 0.5
_DAEMON_URI = ("URI", "forebay:daemon")


@dataclass(frozen=True)
class TLSFiles:
    """PEM files of TLS.

    Attributes:
        ca: certificates of the authority that signs the daemons'.
        cert: the client's certificate.
        key: its key, which only its owner may be able to read.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def or_environment(self) -> TLSFiles:
        """Return the files, those that are not given being the environment's."""
        env = os.environ.get
        return TLSFiles(
            self.ca or env("FOREBAY_TLS_CA"),
            self.cert or env("FOREBAY_TLS_CERT"),
            self.key or env("FOREBAY_TLS_KEY"),
        )


def addresses(asked: str | None) -> list[str]:
    """Return the addresses to try: the given ones, else FOREBAY_SOCKET's, else the usual sockets."""
    given = asked or os.environ.get("FOREBAY_SOCKET", "")
    found = [f"unix://{a}" if a.startswith("/") else a for a in given.split(",") if a]
    if found:
        return found
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        found.append(f"unix://{runtime}/forebay/bbd.sock")
    found.append("unix:///run/forebay/bbd.sock")
    own = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"forebay-{os.getuid()}")
    if _is_private(own):
        found.append(f"unix://{own}/bbd.sock")
    return found


def _is_private(directory: str) -> bool:
    """Report whether no other user can have made a directory and pretend to be a daemon there."""
    try:
        s = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(s.st_mode) and s.st_uid == os.getuid() and not s.st_mode & 0o077


class Succession:
    """Names the sessions that a client has one after the other.

    Once one has begun, the daemon carries out no further request of those before.
    """

    def __init__(self) -> None:
        self._connection = random.token_bytes(_CONNECTION)
        self._last = 0

    def introduce(self, hello: _wire.Hello) -> None:
        """Name the next session. One caller at a time may do so."""
        self._last += 1
        hello.connection, hello.succession = self._connection, self._last


@dataclass(frozen=True)
class Dialer:
    """Opens sessions. It may be used concurrently.

    Attributes:
        addresses: unix:///path or tcp://host:port, tried in order.
        name: the program's name, for the daemon's status and logs.
    """

    addresses: list[str]
    name: str
    secrets: Secrets = field(repr=False)
    tls: TLSFiles

    def __post_init__(self) -> None:
        for a in self.addresses:
            if not a.startswith(("unix://", "tcp://")):
                remedy = "write unix:///path or tcp://host:port"
                raise Invalid("dial", a, "it is no address of a daemon", remedy)

    def dial(self, of: Succession | None = None) -> Session:
        """Open a session, the next one of a succession, with the first daemon that answers."""
        last: Exception | None = None
        for a in self.addresses:
            try:
                return self._dial_one(a, of)
            except Unavailable as e:
                last = e
            except Error:
                raise  # there is a daemon, and it refused, or the address is wrong
            except PermissionError as e:
                if len(self.addresses) == 1:
                    raise PermissionDenied("dial", a, str(e)) from e
                last = e  # another user's: this user's own daemon may be about to start
            except (OSError, EOFError) as e:
                last = e
        raise Unavailable(
            "dial",
            ", ".join(self.addresses),
            f"no daemon answers there: {last}",
            "start one: bbd --dev",
        ) from last

    def redial(self, seconds: float, of: Succession | None = None) -> Session:
        """Dial until a daemon answers or the time is over."""
        deadline = time.monotonic() + seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                return self.dial(of)
            except Unavailable:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            _scope.sleep(min(pause, left))
            pause = min(2 * pause, _LAST_PAUSE)

    def _dial_one(self, address: str, of: Succession | None) -> Session:
        unix = address.startswith("unix://")
        if unix:
            conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            conn.settimeout(_HANDSHAKE_SECONDS)
        else:
            conn = socket.create_connection(_host_and_port(address), _HANDSHAKE_SECONDS)
        try:
            if unix:
                conn.connect(address.removeprefix("unix://"))
            else:
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conn = self._secured(conn, address)
            session = self._handshake(conn, address, of)
            conn.settimeout(None)
            return session
        except BaseException:
            conn.close()
            raise

    def _secured(self, conn: socket.socket, address: str) -> socket.socket:
        """Return a TLS connection over another one, where files of TLS are given."""
        if self.tls == TLSFiles():
            return conn
        if not self.tls.ca:
            raise Invalid(
                "dial",
                address,
                "without the authority's certificate the daemon cannot be authenticated",
                "give the file of that, too",
            )
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False  # a name in the certificate marks a daemon's
            context.load_verify_locations(self.tls.ca)
            if self.tls.cert:
                context.load_cert_chain(self.tls.cert, self.tls.key)
            secure = context.wrap_socket(conn, server_hostname=_host_and_port(address)[0])
        except ssl.SSLError as e:
            raise _refused(address, e) from e
        names = (secure.getpeercert() or {}).get("subjectAltName", ())
        if _DAEMON_URI not in names:
            secure.close()
            raise PermissionDenied("dial", address, "TLS: the certificate is not a daemon's")
        return secure

    def _handshake(self, conn: socket.socket, address: str, of: Succession | None) -> Session:
        """Introduce the client, and prove a key if the daemon requires it."""
        hello = _wire.Hello(
            min_version=MIN_VERSION,
            max_version=MAX_VERSION,
            client=self.name,
            pid=os.getpid(),
            uid=os.getuid(),
            gid=os.getgid(),
        )
        if not address.startswith("unix://"):
            if self.secrets.token is not None:
                hello.token = self.secrets.token.claims
            if self.secrets.keys:
                hello.nonce = random.token_bytes(NONCE)
        if of is not None:
            of.introduce(hello)
        reader = _frames.Reader(conn)
        try:
            conn.sendall(_frames.encode(_wire.TYPE_HELLO, 1, hello))
            reader.next()
            if reader.has(_frames.MORE):
                self._prove(conn, reader, hello, address)
        except _frames.MalformedFrame as e:
            raise Invalid("dial", address, f"the server is not a daemon: {e}") from e
        except ssl.SSLError as e:
            raise _refused(address, e) from e
        except TimeoutError as e:
            reason = f"no answer to the handshake in {_HANDSHAKE_SECONDS:.0f} s"
            raise Unavailable("dial", address, reason) from e
        if reader.has(_frames.ERROR):
            raise from_wire(_wire.Error.FromString(reader.message), False)._about("dial", address)
        welcome = _wire.Welcome.FromString(reader.message)
        if not reader.has(_frames.REPLY) or not MIN_VERSION <= welcome.version <= MAX_VERSION:
            raise Unsupported(
                "dial",
                address,
                f"the daemon, {welcome.server}, chose protocol version {welcome.version}, and this "
                f"package supports versions {MIN_VERSION} to {MAX_VERSION}",
                "install releases with a version in common on both sides",
            )
        return Session(conn, reader, welcome, address)

    def _prove(self, conn: socket.socket, reader: _frames.Reader, hello: _wire.Hello, address: str) -> None:
        challenge = _wire.Challenge.FromString(reader.message)
        if not self.secrets.keys:
            raise PermissionDenied(
                "dial",
                address,
                "the daemon requires a proof of the shared key",
                "give the key file, a token or a certificate",
            )
        if isinstance(conn, ssl.SSLSocket):
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise Unsupported(
                "dial",
                address,
                f"the ssl module of Python {version} cannot bind a key's or a token's proof to a TLS "
                "connection (RFC 9266)",
                "give a client's certificate, or use the daemon of this machine",
            )
        exchange = Exchange(hello.nonce, challenge.nonce)
        key = exchange.common(challenge.proof, self.secrets.keys)
        if key is None:
            if self.secrets.token is not None:
                raise PermissionDenied(
                    "dial",
                    address,
                    "the daemon did not prove the token",
                    "make one with bbctl token at a daemon of this cluster; its key may have been replaced",
                )
            remedy = "give both sides the same key file"
            raise PermissionDenied("dial", address, "the daemon did not prove the shared key", remedy)
        prove = _wire.Prove(proof=exchange.prove(key, hello))
        conn.sendall(_frames.encode(_wire.TYPE_PROVE, 2, prove))
        reader.next()


def _refused(address: str, e: ssl.SSLError) -> PermissionDenied:
    remedy = "give the authority that signs the daemons' certificates, and a client's that it signed"
    return PermissionDenied("dial", address, f"TLS: {e}", remedy)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdigit():
        raise Invalid("dial", address, "it is no address of a daemon", "write tcp://host:port")
    return host.strip("[]"), int(port)
