"""Parses ``--master``, and checks quickly whether a standalone master is reachable."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, replace
from typing import Literal, Self

from streamvault.sparkrun.errors import InvalidMaster, SparkFailed

VARIABLE = "STREAMVAULT_MASTER"
"""Environment variable: the master where ``auto`` is given, as it is by default."""

CONNECT_SECONDS = 5.0
"""Timeout for connecting to a standalone master; Spark itself would try for a minute."""

_INLINE = re.compile(r"inline(?:\[([1-9][0-9]{0,3}|\*)\])?")
_LOCAL = re.compile(r"local(?:\[([1-9][0-9]{0,3}|\*)(?:, ?[1-9][0-9]{0,3})?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ ?[0-9]+ ?, ?[0-9]+ ?, ?[0-9]+ ?\]")
_STANDALONE = re.compile(r"spark://([^/,\s]+(?:,[^/,\s]+)*)")
_ELSEWHERE = re.compile(r"yarn|k8s://\S+")


@dataclass(frozen=True, slots=True)
class Master:
    """A valid ``--master``.

    Attributes:
        url: the URL, as Spark takes it.
        kind: ``inline`` (threads of this process), ``local`` (Spark on this machine), or ``cluster``.
        is_auto: whether ``auto`` was given: a Spark that runs already is used, else threads of this process or Spark on
            this machine, whichever suits the bytes to move.
        threads: maximum concurrent tasks on this machine; 0 for a cluster.
        addresses: host and port of each standalone master.
    """

    url: str
    kind: Literal["inline", "local", "cluster"]
    threads: int = 0
    addresses: tuple[tuple[str, int], ...] = ()
    is_auto: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``auto``, ``inline[N]``, or a master URL of Spark: ``local[N]``, ``spark://HOST:PORT``, ``yarn``, ``k8s://…``.

        Raises:
            InvalidMaster: it is none of them, or ``STREAMVAULT_MASTER`` is not.
        """
        if url == "auto":
            given = os.environ.get(VARIABLE, "").strip()
            if given not in {"", "auto"}:
                return cls.parse(given)
            return replace(cls.parse("local[*]"), is_auto=True)
        if inline := _INLINE.fullmatch(url):
            return cls(url, "inline", threads=_threads(inline[1], os.cpu_count() or 1))
        if local := _LOCAL.fullmatch(url):
            return cls(url, "local", threads=_threads(local[1], (os.cpu_count() or 1) if "*" in url else 1))
        if standalone := _STANDALONE.fullmatch(url):
            return cls(url, "cluster", addresses=tuple(_address(text, url) for text in standalone[1].split(",")))
        if _ELSEWHERE.fullmatch(url) or _LOCAL_CLUSTER.fullmatch(url):
            return cls(url, "cluster")
        raise _invalid(url)

    @property
    def on_loopback(self) -> bool:
        """Whether all of Spark runs on this machine, so that nothing has to listen on other addresses."""
        if self.addresses:
            return all(_is_loopback(host) for host, _ in self.addresses)
        return self.kind == "local" or self.url.startswith("local-cluster")

    def check_reachable(self) -> None:
        """Raise `SparkFailed` if no standalone master accepts a connection."""
        reasons = []
        for address in self.addresses:
            try:
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
            except OSError as error:
                reasons.append(error.strerror or str(error))
            else:
                return
        if reasons:
            raise SparkFailed(
                f"the Spark master does not answer ({reasons[0]})",
                where=self.url,
                todo="Start it or use another --master.",
            )


def _threads(text: str | None, every: int) -> int:
    return every if text in {None, "*"} else int(text or 0)


def _address(text: str, url: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _invalid(url)
    return host.strip("[]"), int(port)


def _invalid(url: str) -> InvalidMaster:
    return InvalidMaster(
        "not a Spark master",
        where=repr(url),
        todo="Use auto, local[N], local[*], spark://HOST:PORT, yarn, k8s://… or inline.",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
