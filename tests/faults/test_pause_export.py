"""An export that is stopped before one of its requests, and resumed after others have published and truncated.

A killed run does nothing afterwards; one that was paused (a stopped virtual machine, say) goes on as if nothing
had happened. The request before which it stops arrives when it is woken up.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator, Mapping

import pytest

from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of, payloads

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(600)]

EVENTS = 40
"""Of each segment and round."""
MOST_SECONDS = 60.0


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


def more(store: StreamStore, name: StreamName, seed: int) -> None:
    for segment in sorted(store.describe(name).tail.offsets):
        append_events(store, name, segment, payloads(EVENTS, seed * 100 + segment.number, largest=10_000))


def through(proxy: FaultProxy, environment: Mapping[str, str]) -> dict[str, str]:
    changed = {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    return {key: value for key, value in changed.items() if key != "AWS_ENDPOINT_URL_S3"}


@pytest.mark.parametrize(
    ("share", "layout"),
    [
        (0.35, "events"),
        (0.7, "chunks"),
        (0.95, "events"),
        *(
            pytest.param(*other, marks=pytest.mark.long)
            for other in [(0.35, "chunks"), (0.7, "events"), (0.95, "chunks")]
        ),
    ],
)
def test_late_export_changes_nothing(
    pravega: PravegaServer, minio: S3Server, proxy: FaultProxy, layout: str, share: float
) -> None:
    bucket = minio.make_bucket(f"paused-{uuid.uuid4().hex[:10]}")
    name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "source")
    source, environment = f"{pravega.uri}/{name}", minio.environment()
    options = ("--layout", layout, "--range-size", "32KiB", "--master", "inline", "--json")
    with parse_stream(source)[0].open() as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
        more(store, name, 1)
        export = ("export", source, f"s3://{bucket}/counted", *options)
        assert run(*export, environment=through(proxy, environment)).code == 0
        requests, root = proxy.requests, f"s3://{bucket}/vault"
        proxy.hold_at(requests + max(1, round(share * requests)))
        with started("export", source, root, *options, environment=through(proxy, environment)) as late:
            assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
            late.send(signal.SIGSTOP)

            rotate = ("rotate", source, root, "--truncate-source", *options)
            assert run(*rotate, environment=environment).code == 0
            archived = digest_of(store, name)
            assert archived[0] == 0, "the archive is the only copy now"
            more(store, name, 2)

            late.send(signal.SIGCONT)
            proxy.resume()
            ended = late.ended()
        assert ended.code in {0, 4}, ended.err
        assert "Traceback" not in ended.err

        archive = f"{root}/{name}"
        checked = run(
            "check", archive, "--read-data", "--repair", "--master", "inline", "--json", environment=environment
        )
        assert checked.report["events"] >= 2 * EVENTS
        assert checked.report["ok"]
        assert run("rotate", source, root, *options, environment=environment).code == 0
        target = StreamName(name.scope, "restored")
        restore = ("import", archive, f"{pravega.uri}/{target}", "--master", "inline", "--json")
        assert run(*restore, environment=environment).report["events"] == 4 * EVENTS
        counted = run("check", f"s3://{bucket}/counted/{name}", "--json", environment=environment).report
        assert counted["events"] == 2 * EVENTS
