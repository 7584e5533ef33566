"""``python -m testkit.servers NAME...``: starts the servers, prints one line of JSON for each, and waits.

They stop at Ctrl-C and at SIGTERM, at SIGHUP unless it is ignored (``nohup``), and also, with ``--with-parent``, when
the process that started this one is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testkit.servers.airflow import AirflowServer
from testkit.servers.availability import Unavailable
from testkit.servers.minio import MinioServer
from testkit.servers.moto import moto_server
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.spark_cluster import SparkCluster
from testkit.servers.versitygw import VersityServer

SERVERS: dict[str, Callable[[], Any]] = {
    "airflow": lambda: AirflowServer([Path(__file__).parents[2] / "dags"]),
    "minio": MinioServer,
    "moto": moto_server,
    "pravega": PravegaServer,
    "pravega-benchmark": lambda: PravegaServer(heap="4g", cache_mib=1024, quick=False),
    "pravega-secure": lambda: PravegaServer(tls=True, accounts=(ADMIN,)),
    "spark": SparkCluster,
    "versitygw": VersityServer,
}


def main() -> int:
    """Start the named servers, wait, stop them."""
    parser = argparse.ArgumentParser(prog="python -m testkit.servers", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(SERVERS), metavar="NAME", help=", ".join(sorted(SERVERS)))
    parser.add_argument("--with-parent", action="store_true", help="stop also when the parent process is gone")
    arguments = parser.parse_args()
    started_by = os.getppid()
    # SIGINT too: a shell starts background jobs with it ignored
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        with ExitStack() as servers:
            for name in arguments.names:
                server = SERVERS[name]()
                entered = servers.enter_context(server)
                # a program knows its process id too, which the value it gives does not
                described = server if hasattr(server, "summary") else entered
                print(json.dumps(described.summary()), flush=True)
            while not arguments.with_parent or os.getppid() == started_by:
                time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
