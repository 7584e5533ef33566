"""Every object is sent with a checksum that the server verifies: CRC64NVME if it does, else SHA-256.

S3 servers that cannot hold an archive, or not safely, are detected and reported when an archive is started.
"""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from streamvault import export_stream, write_table
from streamvault.common.progress import Progress
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.s3.scheme import WORTH_ASKING
from streamvault.objectstore.store import ObjectInfo, ObjectStoreError, UnorderedListing, crc64nvme
from streamvault.objectstore.uri import RootAddress
from testkit.servers.raw_http import bucket_at
from testkit.small_archives import Vault, data_keys

LARGE = bytes(range(256)) * 8192
HEADERS = {"SHA256": "x-amz-checksum-sha256", "CRC64NVME": "x-amz-checksum-crc64nvme"}


def sha256(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


OF = {"SHA256": sha256, "CRC64NVME": crc64nvme}


class Server(ThreadingHTTPServer):
    """Keeps what is put if `judge` says 200.

    Attributes:
        judge: the status and code (``CODE:MESSAGE``) for the headers and the body of a PUT.
        kept: path, body and checksum headers of each object.
        deleted: the paths of DELETE requests.
    """

    def __init__(self) -> None:
        self.judge: Callable[[dict[str, str], bytes], tuple[int, str]] = lambda _, __: (200, "")
        self.kept: list[tuple[str, bytes, dict[str, str]]] = []
        self.deleted: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> RootAddress:
        return bucket_at(f"http://127.0.0.1:{self.server_port}", "vault")


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, code = self.server.judge(headers, body)
        if status == 200:
            checksums = {name: value for name, value in headers.items() if name in HEADERS.values()}
            self.server.kept.append((self.path, body, checksums))
        code, _, message = code.partition(":")
        said = f"<Message>{message}</Message>" if message else ""
        self.answer(status, f"<Error><Code>{code}</Code>{said}</Error>".encode() if code else b"")

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.path)
        self.answer(204, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as the base class has it)
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def verify(headers: dict[str, str], body: bytes) -> tuple[int, str]:
    """As S3 does."""
    right = all(OF[name](body) == headers[header] for name, header in HEADERS.items() if header in headers)
    return (200, "") if right else (400, "BadDigest")


def refuse(headers: dict[str, str], _: bytes) -> tuple[int, str]:
    """As a server does that does not know the header."""
    return (501, "NotImplemented") if "x-amz-checksum-crc64nvme" in headers else (200, "")


@pytest.mark.parametrize("storage_class", ["", "STANDARD_IA"])
@pytest.mark.parametrize("algorithm", ["SHA256", "CRC64NVME"])
def test_every_put_carries_the_checksum(server: Server, storage_class: str, algorithm: str) -> None:
    address = server.address.with_data_class(storage_class)
    store = replace(address, access=replace(address.access, checksum=algorithm)).open_data()
    bodies = (b"", b"small", LARGE)
    for number, body in enumerate(bodies):
        store.put(f"a/{number}", memoryview(body))
    assert server.kept == [
        (f"/bucket/vault/a/{number}", body, {HEADERS[algorithm]: OF[algorithm](body)})
        for number, body in enumerate(bodies)
    ]


@pytest.mark.parametrize(
    ("judge", "algorithm", "left"),
    [
        (verify, "CRC64NVME", 0),
        (lambda _, __: (200, ""), "SHA256", 1),
        (refuse, "SHA256", 0),
        (lambda _, __: (400, "InvalidRequest"), "SHA256", 0),
        (lambda _, __: (403, "AccessDenied"), "SHA256", 0),
    ],
    ids=["verifies", "ignores", "refuses", "rejects", "denies"],
)
def test_checksum_is_one_that_the_server_verifies(
    server: Server, judge: Callable[[dict[str, str], bytes], tuple[int, str]], algorithm: str, left: int
) -> None:
    server.judge = judge
    probed = server.address.probe("scope/stream/_work/", WORTH_ASKING)
    assert probed.access.checksum == algorithm
    assert replace(probed.access, checksum="SHA256") == server.address.access
    assert [path for path, *_ in server.kept] == server.deleted
    assert len(server.deleted) == left
    assert all(path.startswith("/bucket/vault/scope/stream/_work/probe-") for path in server.deleted)


def test_server_that_does_not_answer_gets_sha256(server: Server) -> None:
    address = server.address
    server.server_close()
    assert address.probe("_work/", WORTH_ASKING) == address


def test_server_is_not_asked_for_few_bytes(server: Server) -> None:
    server.judge = verify
    assert server.address.probe("_work/", WORTH_ASKING - 1) == server.address


def refuse_all(headers: dict[str, str], _: bytes) -> tuple[int, str]:
    """As a server does that knows no checksums."""
    found = next((name for name in headers if name.startswith("x-amz-checksum-")), None)
    return (400, f"InvalidArgument:Unsupported header '{found}'") if found else (200, "")


def test_refused_checksum_is_named_and_can_be_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.judge = refuse_all
    with pytest.raises(
        ObjectStoreError, match="400 InvalidArgument: Unsupported header 'x-amz-checksum-sha256'"
    ) as told:
        server.address.open().put("a", b"x")
    assert "AWS_REQUEST_CHECKSUM_CALCULATION=when_required" in str(told.value)
    settings = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    settings |= {
        "AWS_ENDPOINT_URL": server.address.access.endpoint,
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    address = RootAddress.parse("s3://bucket/vault").resolve()
    assert address.probe("_work/", WORTH_ASKING) == address
    for number, body in enumerate((b"small", LARGE)):
        address.open().put(f"a/{number}", memoryview(body))
    assert server.kept == [(f"/bucket/vault/a/{number}", body, {}) for number, body in enumerate((b"small", LARGE))]


def test_condition_that_is_not_implemented_is_told(server: Server) -> None:
    server.judge = lambda headers, _: (501, "NotImplemented:Not yet") if "if-none-match" in headers else (200, "")
    with pytest.raises(ObjectStoreError, match=r"\(501 NotImplemented: Not yet\).* must accept If-None-Match"):
        server.address.open().put("a", b"x")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_that_does_not_answer_is_named(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for other in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, f"http://user:secret@127.0.0.1:{port}")
    with pytest.raises(ObjectStoreError, match=f"through the proxy 127.0.0.1:{port}.*HTTP_PROXY") as told:
        server.address.open(retry_seconds=0).put("a", b"x")
    assert "secret" not in str(told.value)


class Told(Progress):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=10)
    return vault


def export(vault: Vault) -> list[str]:
    told = Told()
    export_stream(vault.uri(), vault.root, master="inline", progress=told)
    return told.warnings


def test_sound_server_gives_no_warning(vault: Vault) -> None:
    assert export(vault) == []
    assert not [key for key in data_keys(vault.root) if "probe" in key]


def test_server_that_lists_in_another_order_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ObstoreStore.list

    def in_another_order(self: ObstoreStore, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(listed(self, prefix, after), key=lambda entry: entry.key.lower(), reverse=True))

    monkeypatch.setattr(ObstoreStore, "list", in_another_order)
    with pytest.raises(UnorderedListing, match="another server"):
        export(vault)
    assert data_keys(vault.root) == []


@pytest.mark.parametrize("verb", ["export", "write_table"])
def test_server_that_overwrites_is_warned_of_once(vault: Vault, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        self._backend.put(self._base + key, data, mode="overwrite")

    def warnings() -> list[str]:
        if verb == "export":
            return export(vault)
        told = Told()
        report = write_table(vault.uri(), root=vault.root, master="inline", progress=told)
        assert report.warnings == tuple(told.warnings)
        return told.warnings

    monkeypatch.setattr(ObstoreStore, "put", overwrite)
    (warning,) = warnings()
    assert "do not run two exports" in warning
    vault.add(b"more")
    assert warnings() == []
