"""Servers that take connections and never answer: commands say that they wait, and Ctrl-C ends them at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from streamvault.cli.app import COMMANDS, load_command
from streamvault.streamstore.pravega import controller_pb2 as pb
from testkit.small_archives import Vault

ENDS_WITHIN = 10.0
"""Far less than the 30 s for which a server may be silent, and far more than the second that it takes."""

AT_ONCE = 4
"""Commands that run at the same time; each waits for most of its second."""

S3 = {"ROOT": "s3://bucket/other", "ARCHIVE": "s3://bucket/root/scope/stream"}
PRAVEGA = {
    **dict.fromkeys(("STREAM", "SOURCE", "REPLICA", "QUEUE"), "{cluster}/scope/stream"),
    "TARGET": "{cluster}/scope/new",
    "SCOPE/": "{cluster}/scope/",
}
"""What arguments of this kind are if S3 or Pravega hangs."""

ELSEWHERE = {
    "ROOT": "{folder}/root",
    "ARCHIVE": "{folder}/vault/scope/stream",
    **dict.fromkeys(("STREAM", "SOURCE", "REPLICA"), "{stream}"),
    "QUEUE": "{stream}-queue",
    "SCOPE/": "local://{folder}/streams/scope/",
    "TARGET": "{stream}-new",
    "POINTER": "scope/stream/0.#epoch.0:0-11",
    "NAME": "audit",
    "ENGINE": "trino",
    "LAYOUT": "chunks",
    "OFFSET": "0",
}
"""What other arguments are."""

NEEDED = {"report": ["-o", "{folder}/page.html"], "append": ["--into", "{stream}"]}
NEEDED_FOR_STREAMS = {
    **NEEDED,
    "handoff": ["--root", "{folder}/lake"],
    "ddl": ["--root", "{folder}/lake"],
    "append": ["--into", "{cluster}/scope/other"],
    "status": ["--root", "{folder}/root"],
}
"""Options without which a command asks nobody."""

ALONE = {"demo"}
"""Commands that ask no server."""

LEFT_TO_A_WORKER = {"request-restore"}
"""Commands that name an archive and do not look at it."""


def leaves() -> dict[str, Any]:
    """Every command, those of groups too."""
    found: dict[str, Any] = {}
    for name in COMMANDS:
        command = load_command(name)
        parts = getattr(command, "commands", {"": command})
        found |= {f"{name} {part}".strip(): one for part, one in parts.items()}
    return found


def command_lines(hung: Mapping[str, str]) -> dict[str, list[str]]:
    """Those commands that have arguments of these kinds."""
    found = {}
    for name, command in leaves().items():
        line, asks = name.split(), False
        for one in command.params:
            is_option = one.param_type_name == "option"
            if is_option and not one.required:
                continue
            kinds = (one.metavar or one.name.upper()).split("|")
            if kinds == ["SOURCE"] and "archive" in one.help.lower():
                kinds.insert(0, "ARCHIVE")
            value = next((hung[kind] for kind in kinds if kind in hung), None)
            asks = asks or value is not None
            line += one.opts[:1] if is_option else []
            line.append(value or next(ELSEWHERE[kind] for kind in kinds if kind in ELSEWHERE))
        if asks and not (hung is S3 and name in LEFT_TO_A_WORKER):
            found[name] = line + (NEEDED if hung is S3 else NEEDED_FOR_STREAMS).get(name, [])
    return found


METHODS = pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name
SEGMENT = pb.SegmentId(streamInfo=pb.StreamInfo(scope="scope", stream="stream"), segmentId=0)


class Controller(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A controller all of whose streams have one segment, at a segment store of this port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(
            partial(self._answer, name),
            request_deserializer=GetMessageClass(METHODS[name].input_type).FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    def _answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: PLR0911  (one for each kind)
        match method:
            case "getURI":
                return pb.NodeUri(endpoint="127.0.0.1", port=self._port)
            case "getEpochSegments" if request.epoch:
                context.abort(grpc.StatusCode.NOT_FOUND, "no such epoch")
            case "getCurrentSegments" | "getEpochSegments":
                whole = pb.SegmentRange(segmentId=SEGMENT, minKey=0, maxKey=1)
                return pb.SegmentRanges(segmentRanges=[whole])
            case "getSegments":
                return pb.SegmentsAtTime(segments=[pb.SegmentsAtTime.SegmentLocation(segmentId=SEGMENT, offset=0)])
            case "getStreamConfiguration" if request.stream == "new":
                context.abort(grpc.StatusCode.NOT_FOUND, "no such stream")
            case "getStreamConfiguration":
                fixed = pb.ScalingPolicy(scaleType=pb.ScalingPolicy.FIXED_NUM_SEGMENTS, minNumSegments=1)
                return pb.StreamConfig(streamInfo=request, scalingPolicy=fixed)
            case "checkScopeExists":
                return pb.ExistsResponse(exists=True)
            case "checkStreamExists":
                return pb.ExistsResponse(exists=request.stream != "new")
            case "listStreamsInScope" if not request.continuationToken.token:
                return pb.StreamsInScopeResponse(streams=[SEGMENT.streamInfo], continuationToken={"token": "end"})
        return GetMessageClass(METHODS[method].output_type)()


@contextmanager
def controller_of(segment_store: socket.socket) -> Iterator[int]:
    """The port of a controller that sends its clients to a segment store."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Controller(segment_store.getsockname()[1]),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None)


@contextmanager
def hung() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(60)
        yield server


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    folder = tmp_path_factory.mktemp("hung")
    vault = Vault(folder, root=f"file://{folder}/vault")
    vault.create()
    vault.add(b"one")
    vault.export()
    return vault


def begun(line: list[str], vault: Vault, s3: int) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMVAULT_"))}
    environment |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "streamvault", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=vault.folder,
    )


def wrong_at_ctrl_c(line: list[str], vault: Vault, kind: str) -> str:
    """Interrupt a command once it has asked the server something; what is wrong with how it ends, or nothing."""
    with hung() as server, controller_of(server) as controller:
        port = server.getsockname()[1]
        cluster = f"pravega://127.0.0.1:{controller if kind == 'segment store' else port}"
        places = {"cluster": cluster, "stream": vault.uri(), "folder": str(vault.folder)}
        with begun([*(one.format(**places) for one in line), "--json"], vault, port) as command:
            try:
                with closing(server.accept()[0]) as connection:
                    connection.settimeout(60)
                    connection.recv(1)
                    began = time.monotonic()
                    command.send_signal(signal.SIGINT)
                    out, err = command.communicate(timeout=60)
                    took = time.monotonic() - began
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                command.kill()
                return f"{error}: {command.communicate()}"
    ended = command.returncode, json.loads(out)["error"]["exit_code"] if out else None
    said = err.splitlines()[-1:]
    good = ended == (130, 130) and said and said[0].startswith("streamvault: interrupted")
    return "" if good and took < ENDS_WITHIN else f"{took:.1f} s, {ended}, {err}"


KINDS = ("S3", "controller", "segment store")


def shared_out(kind: str) -> dict[str, list[str]]:
    """Each command with one of the servers that it may wait for; its neighbour has another one."""
    of = {one: command_lines(S3 if one == "S3" else PRAVEGA) for one in KINDS}
    chosen = {}
    for number, name in enumerate(leaves()):
        kinds = [one for one in KINDS if name in of[one]]
        if kinds and kinds[number % len(kinds)] == kind:
            chosen[name] = of[kind][name]
    return chosen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "every"])
def test_ctrl_c_ends_every_command_that_waits(kind: str, every: bool, vault: Vault) -> None:
    lines = command_lines(S3 if kind == "S3" else PRAVEGA) if every else shared_out(kind)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = dict(zip(lines, pool.map(lambda line: wrong_at_ctrl_c(line, vault, kind), lines.values()), strict=True))
    assert {name: text for name, text in wrong.items() if text} == {}


def test_no_command_is_left_out() -> None:
    assert {name for kind in KINDS for name in shared_out(kind)} == {*leaves()} - ALONE
    assert {*command_lines(S3), *command_lines(PRAVEGA), *ALONE} == {*leaves()}


@pytest.mark.long
def test_a_command_without_phases_says_which_server_it_waits_for(vault: Vault) -> None:
    with hung() as server, begun(["ls", S3["ROOT"], "--progress-every", "1s"], vault, server.getsockname()[1]) as one:
        assert one.stderr is not None
        line = one.stderr.readline()
        one.kill()
    assert "waiting for S3 for" in line
