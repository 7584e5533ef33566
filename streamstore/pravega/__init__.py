"""Our own client of a real Pravega: controller over gRPC, segment stores over TCP.

    settings = PravegaSettings.from_environment("pravega://127.0.0.1:9090")
    with PravegaStore(settings) as store:
        ...

Modules: `settings` where it is; `calls` and `controller` the controller's calls and statuses, `convert` its messages;
`wire` the segment store's frames, `connection`, `pool` and `tokens` how they travel; `segments`, `session`, `reader`
and `appender` what is done with one segment; `history` and `changes` what is done with a stream; `store` all
of it as a `StreamStore`.
"""

from __future__ import annotations

import os

# gRPC reads this when it is imported; its log would come between ours, and its errors are reported as ours anyway
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from streamstore.pravega.settings import PravegaSettings
from streamstore.pravega.store import PravegaStore

__all__ = ["PravegaSettings", "PravegaStore"]
