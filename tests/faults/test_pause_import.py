"""An import that is stopped before one of its requests, and resumed after another run of it has ended.

The other run takes the target over, for the stopped one gives no sign of life. Users write to the stream that it
restored; the late run may succeed or say that it came too late, and changes nothing.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of, make_stream, shape_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

EVENTS = 400
MOST_SECONDS = 60.0
OPTIONS = ("--master", "inline", "--json")


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_late_import_changes_nothing(pravega: PravegaServer, minio: S3Server, proxy: FaultProxy, share: float) -> None:
    root = f"s3://{minio.make_bucket(f'paused-{uuid.uuid4().hex[:10]}')}"
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    target = StreamName(name.scope, "target")
    direct = minio.environment()
    held_up = {**direct, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    with parse_stream(f"{pravega.uri}/{name}")[0].open() as store:
        make_stream(store, name, events=EVENTS, largest=10_000)
        export = ("export", f"{pravega.uri}/{name}", root, "--layout", "chunks", "--range-size", "4KiB", *OPTIONS)
        assert run(*export, environment=direct).code == 0
        restore = ("import", f"{root}/{name}", f"{pravega.uri}/{target}", *OPTIONS)
        counted = ("import", f"{root}/{name}", f"{pravega.uri}/{name.scope}/counted", *OPTIONS)
        assert run(*counted, environment=held_up).code == 0
        requests = proxy.requests
        proxy.hold_at(requests + max(1, round(share * requests)))
        with started(*restore, environment=held_up) as late:
            assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
            late.send(signal.SIGSTOP)

            assert run(*restore, environment=direct).report["events"] == digest_of(store, name)[0]
            assert digest_of(store, target) == digest_of(store, name)
            assert shape_of(store, target) == shape_of(store, name)
            append_events(store, target, min(store.describe(target).tail.offsets), [b"of a user"])
            left = digest_of(store, target), shape_of(store, target)

            late.send(signal.SIGCONT)
            proxy.resume()
            ended = late.ended()
        assert ended.code in {0, 4}, ended.err
        assert "Traceback" not in ended.err
        assert (digest_of(store, target), shape_of(store, target)) == left
