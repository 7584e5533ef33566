"""Pravega client: controller over gRPC, segment stores over TCP.

    settings = PravegaSettings.from_environment("pravega://127.0.0.1:9090")
    with PravegaStore(settings) as store:
        ...

Modules: `settings` (address and login); `calls` and `controller` (controller calls, messages and statuses); `wire` (the
segment store's frames) and `connection` (their transport); `segments`, `reader` and `appender` (operations on a
segment); `store` (all of it as a `StreamStore`).
"""

from __future__ import annotations

import os

# gRPC reads this on import; its log would mix with ours, and its errors are reported as ours anyway
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.store import PravegaStore

__all__ = ["PravegaSettings", "PravegaStore"]
