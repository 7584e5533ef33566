"""`streamvault streams`."""

from __future__ import annotations

import streamvault
from streamvault.cli.options import StoreArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text
from streamvault.manager.reports import StreamListing, StreamSummary


def streams(store: StoreArgument, *, running: Running) -> int:
    """List the streams of a scope or a cluster."""
    with running.command() as command:
        found = tuple(streamvault.list_streams(store))
        for one in found:
            if one.problem:
                command.progress.warn(f"{one.stream}: {one.problem}")
        command.write(StreamListing(streams=found).to_json(), lambda results: _show(results, store, found))
    return command.exit_code


def _show(results: Results, store: str, found: tuple[StreamSummary, ...]) -> None:
    if not found:
        results.line(f"no streams in {store}")
        return
    results.table(
        {"STREAM": False, "SEGMENTS": True, "BYTES": True, "REMARKS": False},
        [
            (one.stream, "?", "?", "cannot be read")
            if one.problem
            else (one.stream, f"{one.segments:,}", bytes_text(one.bytes), _remarks(one))
            for one in found
        ],
    )


def _remarks(one: StreamSummary) -> str:
    remarks = [f"Streamvault's: {one.role}"] if one.own else ["ephemeral"] if one.role == "ephemeral" else []
    return ", ".join(["sealed"] * one.sealed + remarks)
