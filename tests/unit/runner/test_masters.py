"""Master URLs: their meaning, invalid ones, and a master that does not answer."""

from __future__ import annotations

import socket
import time

import pytest

from streamvault.common.errors import Usage
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import InvalidMaster, Master, SparkFailed


@pytest.mark.parametrize(
    ("url", "kind", "on_loopback"),
    [
        ("inline", "inline", False),
        ("inline[4]", "inline", False),
        ("local", "local", True),
        ("local[2]", "local", True),
        ("local[*]", "local", True),
        ("local[*, 3]", "local", True),
        ("local-cluster[2,1,512]", "cluster", True),
        ("spark://127.0.0.1:7077", "cluster", True),
        ("spark://[::1]:7077", "cluster", True),
        ("spark://127.0.0.1:7077,spark.example:7077", "cluster", False),
        ("spark://spark.example:7077", "cluster", False),
        ("yarn", "cluster", False),
        ("k8s://https://cluster.example:6443", "cluster", False),
    ],
)
def test_master_url_has_its_kind(url: str, kind: str, on_loopback: bool) -> None:
    master = Master.parse(url)
    assert (master.kind, master.on_loopback or kind == "inline") == (kind, on_loopback or kind == "inline")


@pytest.mark.parametrize(
    "url",
    ["", "lokal", "local[0]", "local[x]", "inline[0]", "spark://", "spark://host", "spark://host:0", "spark://h:99999",
     "spark://h:٣", "http://host:7077", "mesos://host:5050", "local\n", "yarn-client"],
)  # fmt: skip
def test_invalid_master_url_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidMaster) as caught, open_runner(url):
        pass
    assert isinstance(caught.value, Usage)
    assert "\n" not in str(caught.value)


def test_master_that_is_down_fails_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # the port is bound, but nothing listens
        url = f"spark://127.0.0.1:{held.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(SparkFailed, match=r"the Spark master does not answer .*refused") as caught:
            Master.parse(url).check_reachable()
    assert time.monotonic() - began < 6
    assert url in str(caught.value)
