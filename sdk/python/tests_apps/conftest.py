from tests.conftest import buffer, client, daemon, shared_daemon, store

__all__ = ["buffer", "client", "daemon", "shared_daemon", "store"]
