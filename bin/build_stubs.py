"""Makes the controller's gRPC stubs from our own .proto when the package is built (also for an editable install)."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("streamvault/streamstore/pravega")


class StubsHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Runs protoc from grpcio-tools over streamvault/streamstore/pravega/controller.proto."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write controller_pb2.py, controller_pb2.pyi and controller_pb2_grpc.py beside the .proto."""
        from grpc_tools import protoc  # noqa: PLC0415

        folder = Path(self.root) / FOLDER
        include = resources.files("grpc_tools") / "_proto"
        status = protoc.main(
            [
                "protoc",
                f"-I{folder}",
                f"-I{include}",
                f"--python_out={folder}",
                f"--pyi_out={folder}",
                f"--grpc_python_out={folder}",
                str(folder / "controller.proto"),
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc failed with status {status} on {folder / 'controller.proto'}")
        # protoc writes an absolute import; the stubs live inside a package
        stub = folder / "controller_pb2_grpc.py"
        stub.write_text(
            re.sub(r"^import controller_pb2", "from . import controller_pb2", stub.read_text(), flags=re.MULTILINE)
        )
