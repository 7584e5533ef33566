"""An S3 server of a few hundred keys that lies: in its listings, its bodies, its sizes, and where it sends one to."""

from __future__ import annotations

import hashlib
import random
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

HOST = "127.0.0.1"
BUCKET = "vault"
MUCH = 3 << 30
"""How many bytes a body has that ends late."""
SIZES = ("-1", "99999999999999999999", "x", "9223372036854775807", "0")
PAGES = 1_100
"""Pages of an endless listing: one that goes on for ever is told from a large bucket by nobody."""
_XML = b'<?xml version="1.0" encoding="UTF-8"?>'
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")

KEYS = (
    *(
        "../../outside",
        "/absolute",
        "root/demo/orders/../../../x",
        "root/demo/orders/a\nb",
        "root/demo/orders/%2e%2e/x",
    ),
    *(
        "root/demo/orders/_manifest/%00",
        "root/demo/orders//x",
        "root/demo/orders/" + "k" * 100_000,
        "other/demo/orders/x",
    ),
    *("root/demo/orders/_manifest/\u202e0000000009.json", "root/../x", "", "root/demo/orders/_manifest/decisions/\x7f"),
    *(
        "root/demo/orders/_work/../../../other/x",
        "root/demo/orders/chunks/..%2f..%2fx",
        "root\\demo\\x",
        "root/./demo/x",
    ),
)
ALIKE = ("moved", "status", "headers", "short", "empty")
LISTINGS = {
    "again": "the same page for ever",
    "endless": "a million keys that nobody asked for",
    "keys": "keys that are outside, or none",
    "order": "descending",
    "twice": "each key twice",
    "size": "sizes that are no sizes",
    "entities": "entities of entities",
    "nested": "elements in elements",
    "large": "a body of 64 MiB",
    "cut": "half of it",
    "prefixes": "folders that are none",
    "reference": "characters that XML cannot have",
    **dict.fromkeys(ALIKE, "as in bodies"),
}
BODIES = {
    "whole": "200 instead of 206",
    "range": "206 of another range",
    "short": "fewer bytes than said",
    "long": "more bytes than said",
    "huge": "a length of 2^62",
    "endless": "chunks without end",
    "gzip": "gigabytes, encoded as gzip",
    "moved": "a redirect to another host",
    "empty": "nothing at all",
    "headers": "a header of many MiB",
    "etag": "another ETag each time",
    "status": "a status that is none",
    "other": "another object",
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has had enough."""


class HostileS3:
    """Serves objects on a free port of the loopback address. A context manager.

    Args:
        objects: by key, in the one bucket that there is.

    Attributes:
        how: a lie: ``list:`` and one of `LISTINGS`, or ``body:`` and one of `BODIES`; empty for none.
        after: how many answers are honest before. objects: what is stored.
        told: headers with a login that came to the host of a redirect.
    """

    def __init__(self, objects: Mapping[str, bytes], seed: int = 0) -> None:
        self.objects = dict(objects)
        self.how, self.after = "", 0
        self.told: list[str] = []
        self._rng = random.Random(seed)
        self._zipped = _zipped()
        here = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                try:
                    here.answer(self)
                except OSError:
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815  (as the base class looks for them)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as the base class has it)
                pass

        class Other(Handler):
            def do_any(self) -> None:
                here.told += [
                    name for name in self.headers if name.lower() in {"authorization", "x-amz-security-token"}
                ]
                self.send_response_only(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

        self._servers = [_Server((HOST, 0), Handler), _Server(("127.0.0.2", 0), Other)]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a command finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self._servers[0].server_port}",
            "AWS_ACCESS_KEY_ID": "hostile",
            "AWS_SECRET_ACCESS_KEY": "hostile-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def answer(self, asked: Any) -> None:
        """Answer a request."""
        split = urlsplit(asked.path)
        query = {name: value[0] for name, value in parse_qs(split.query, keep_blank_values=True).items()}
        key = unquote(split.path).removeprefix(f"/{BUCKET}").lstrip("/")
        sent = asked.rfile.read(int(asked.headers.get("Content-Length", 0)))
        kind, _, lies = self.how.partition(":")
        if kind != ("list" if asked.command == "GET" and not key else "body"):
            lies = ""
        self.after -= bool(lies)
        lies = lies if self.after < 0 else ""
        if asked.command == "GET" and not key:
            self._list(asked, query, lies)
        elif asked.command in {"GET", "HEAD"}:
            self._get(asked, key, lies)
        elif asked.command == "PUT" and not query:
            there = key in self.objects and asked.headers.get("If-None-Match") == "*"
            if not there:
                self.objects[key] = sent
            _send(asked, 412 if there else 200, _error("PreconditionFailed") if there else b"", {"ETag": '"x"'})
        elif asked.command == "POST" and "delete" in query:
            gone = re.findall(rb"<Key>.*?</Key>", sent)
            for found in gone:
                self.objects.pop(found[5:-6].decode(), None)
            _send(
                asked,
                200,
                _XML + b"<DeleteResult>%s</DeleteResult>" % b"".join(b"<Deleted>%s</Deleted>" % one for one in gone),
            )
        else:
            _send(asked, 501, _error("NotImplemented"))

    def _list(self, asked: Any, query: dict[str, str], lies: str) -> None:
        if "prefix" not in query and "list-type" not in query:
            _send(asked, 404, _error("ObjectLockConfigurationNotFoundError"))
            return
        prefix, after = query.get("prefix", ""), query.get("continuation-token") or query.get("start-after") or ""
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        folders: list[str] = []
        if "delimiter" in query:
            below = {key: key[len(prefix) :] for key in keys}
            folders = sorted({prefix + rest.split("/")[0] + "/" for rest in below.values() if "/" in rest})
            keys = [key for key, rest in below.items() if "/" not in rest]
            if lies in {"again", "endless"}:
                lies = ""  # obstore collects all pages of folders
        page = _Page(prefix, keys, folders)
        if lies in _PAGES:
            page = _PAGES[lies](page, self._rng, query.get("continuation-token", ""))
        data = page.encode({key: len(data) for key, data in self.objects.items()}, lies)
        if lies == "cut":
            data = data[: len(data) // 2]
        if lies == "large":
            _send_much(asked, data[:200], {}, most=64 << 20)
        else:
            self._lie(asked, data, 200, lies if lies in ALIKE else "", {})

    def _get(self, asked: Any, key: str, lies: str) -> None:
        data = self.objects.get(key)
        if data is None:
            _send(asked, 404, _error("NoSuchKey"))
            return
        headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
        status, whole = 200, len(data)
        if found := _RANGE.fullmatch(asked.headers.get("Range", "")):
            start = int(found[1] or 0)
            end = min(int(found[2]) + 1 if found[2] else whole, whole)
            if start >= whole:
                _send(asked, 416, _error("InvalidRange"))
                return
            if lies == "range":
                start, end = start + 1, end + 1
            status, part = 206, data[start:end]
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{whole}"
            if lies == "whole":
                status = 200
                del headers["Content-Range"]
            else:
                data = part
        if lies == "etag":
            headers["ETag"] = f'"{self._rng.random()}"'
        elif lies == "other":
            data = self._rng.choice(list(self.objects.values()))[: len(data)].ljust(len(data), b"\0")
        self._lie(asked, data, status, lies, headers)

    def _lie(self, asked: Any, data: bytes, status: int, lies: str, headers: dict[str, str]) -> None:
        if lies == "short":
            _send(asked, status, data[: len(data) // 2], {**headers, "Content-Length": str(len(data))})
            asked.close_connection = True
        elif lies == "long":
            _send(asked, status, data + bytes(1 << 20), {**headers, "Content-Length": str(len(data))})
            asked.close_connection = True
        elif lies == "huge":
            _send_much(asked, data, {**headers, "Content-Length": str(2**62)}, status)
        elif lies == "endless":
            _send_much(asked, data, headers, status)
        elif lies == "gzip":
            _send(asked, status, self._zipped, {**headers, "Content-Encoding": "gzip"})
        elif lies == "moved":
            where = f"http://127.0.0.2:{self._servers[1].server_port}{asked.path}"
            _send(asked, self._rng.choice((301, 302, 307, 308)), b"", {"Location": where})
        elif lies == "empty":
            asked.close_connection = True
        elif lies == "headers":
            _send(asked, status, data, {**headers, "X-Long": "x" * (8 << 20)})
        elif lies == "status":
            asked.wfile.write(b"HTTP/1.1 999999 \xff\r\n\r\n")
            asked.close_connection = True
        else:
            _send(asked, status, data, headers)


@dataclass(frozen=True)
class _Page:
    """A page of a listing; ``size`` of all entries if given, ``token`` if there is another page."""

    prefix: str
    keys: list[str]
    folders: list[str]
    size: str = ""
    token: str = ""

    def encode(self, sizes: Mapping[str, int], lies: str) -> bytes:
        inner = "".join(_ENTRY.format(_text(key), self.size or sizes.get(key, 0)) for key in self.keys)
        inner += "".join(f"<CommonPrefixes><Prefix>{_text(one)}</Prefix></CommonPrefixes>" for one in self.folders)
        head = _XML.decode()
        if lies == "entities":
            bombs = (f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 100}">' for n in range(12))
            head += f"<!DOCTYPE x [{''.join(bombs)}]>"
        inner += {
            "entities": _ENTRY.format(f"{self.prefix}&e11;", 1),
            "nested": "<a>" * 1_000_000,
            "reference": _ENTRY.format(f"{self.prefix}&#xD800;&#0;", 1),
        }.get(lies, "")
        more = f"<NextContinuationToken>{self.token}</NextContinuationToken>" if self.token else ""
        about = f"<Name>{BUCKET}</Name><Prefix>{_text(self.prefix)}</Prefix><KeyCount>{len(self.keys)}</KeyCount>"
        about += f"<MaxKeys>1000</MaxKeys><IsTruncated>{str(bool(self.token)).lower()}</IsTruncated>{more}"
        return f"{head}<ListBucketResult>{about}{inner}</ListBucketResult>".encode(errors="surrogatepass")


_MODIFIED = "<LastModified>2026-01-02T03:04:05.000Z</LastModified>"
_ENTRY = f"<Contents><Key>{{}}</Key>{_MODIFIED}<ETag>x</ETag><Size>{{}}</Size></Contents>"


def _text(key: str) -> str:
    return escape(key, {"\n": "&#10;"})


def _endless(page: _Page, _rng: random.Random, token: str) -> _Page:
    number = int(token or 0)
    keys = [f"{page.prefix}z{number:012}{one:04}" for one in range(1000)]
    return replace(page, keys=keys, token=str(number + 1) if number < PAGES else "")


_PAGES: dict[str, Callable[[_Page, random.Random, str], _Page]] = {
    "again": lambda page, _rng, _token: replace(page, keys=page.keys or [f"{page.prefix}x"], token="again"),
    "endless": _endless,
    "keys": lambda page, rng, _token: replace(page, keys=sorted([*page.keys, *rng.sample(KEYS, 3)])),
    "order": lambda page, _rng, _token: replace(page, keys=page.keys[::-1]),
    "twice": lambda page, _rng, _token: replace(page, keys=[key for key in page.keys for _ in range(2)]),
    "size": lambda page, rng, _token: replace(page, size=rng.choice(SIZES)),
    "prefixes": lambda page, rng, _token: replace(
        page, folders=[*page.folders, *(f"{one}/" for one in rng.sample(KEYS, 4))]
    ),
}


def objects_below(root: Path) -> Iterator[tuple[str, bytes]]:
    """Each file's path below a folder, and its content."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(root)), path.read_bytes()


def _error(code: str) -> bytes:
    return _XML + f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _send(asked: Any, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    asked.send_response_only(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        asked.send_header(name, value)
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(body)


def _send_much(asked: Any, body: bytes, headers: Mapping[str, str], status: int = 200, most: int = MUCH) -> None:
    """A body that goes on for gigabytes."""
    asked.send_response_only(status)
    chunked = "Content-Length" not in headers
    for name, value in {**headers, **({"Transfer-Encoding": "chunked"} if chunked else {})}.items():
        asked.send_header(name, value)
    asked.end_headers()
    asked.close_connection = True
    if asked.command == "HEAD":
        return
    block, sent = body + bytes((1 << 20) - len(body) % (1 << 20)), 0
    while sent < most:
        asked.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
        sent += len(block)


def _zipped() -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(512)) + squeeze.flush()
