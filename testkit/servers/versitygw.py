"""A real versitygw: a second, independent S3 server, and the fastest one for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testkit.servers.golang import go_program
from testkit.servers.s3 import S3Program

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"


class VersityServer(S3Program):
    """versitygw on one folder, whose file system must have extended attributes."""

    name = "versitygw"
    ready_path = "/health"

    def program(self) -> Path:
        """See the base class."""
        return go_program(MODULE, VERSION)

    def arguments(self, address: str, folder: Path) -> list[str]:
        """See the base class."""
        return [
            "--port",
            address,
            "--health",
            self.ready_path,
            "--quiet",
            "--keep-alive",
            "posix",
            str(folder / "data"),
        ]

    def environment(self) -> Mapping[str, str]:
        """See the base class."""
        return {
            **super().environment(),
            "ROOT_ACCESS_KEY_ID": self.access_key,
            "ROOT_SECRET_ACCESS_KEY": self.secret_key,
        }
