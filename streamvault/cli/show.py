"""`streamvault show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.cli.lines import exact_text
from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text, events_text, exact_moment_text
from streamvault.manifests.options import ShowOptions
from streamvault.streamstore.model import KeyRange, SegmentId

_SCALING_UNITS = {"events": " events/s per segment", "kbytes": " KB/s per segment"}
_RETENTION_UNITS = {"time": " ms", "size": " bytes"}
_COUNTS = {"factor", "min_segments"}


def show(archive: ArchiveArgument, options: ShowOptions, *, command: Command) -> None:
    """Print the manifest of an archive's newest generation."""
    from streamvault.manifests.archive import Archive

    manifest, fingerprint, decision = command.run(Archive.open(archive).found, options.generation)
    document = {**manifest.document(), "fingerprint": fingerprint}
    begun = decision.title if decision.deletion else ""
    command.write(document, lambda results: _show(results, archive, document, decision.dropped, begun))


def _show(results: Results, archive: str, document: dict[str, Any], dropped: int = 0, begun: str = "") -> None:
    results.line(archive)
    configuration = document["configuration"]
    results.fields(
        {
            "stream": f"{document['scope']}/{document['stream']}",
            "generation": str(document["generation"]),
            "merged": _merged(document.get("replaces", ())),
            "head": dropped and f"generation {dropped + 1}; earlier ones have expired",
            "deletion": begun and f"begun, according to {begun}",
            "taken": exact_moment_text(document["created"]),
            "source": str(document["source"]),
            "fingerprint": str(document["fingerprint"]),
            "layout": str(document["layout"]),
            "content": str(document.get("content", "")),
            "events": events_text(document["events"], document["bytes"]),
            "bytes": exact_text(document["bytes"]),
            "epochs": f"{len(document['epochs']):,}",
            "scaling": _policy(configuration["scaling"], _SCALING_UNITS),
            "retention": _policy(configuration["retention"], _RETENTION_UNITS),
            "tags": ", ".join(configuration["tags"]),
            "schemas": _schemas(document.get("schemas")),
        }
    )
    results.line("")
    from streamvault.manifests.epochs import parse_epochs

    ranges = parse_epochs(document["epochs"]).ranges
    results.table(
        {"SEGMENT": False, "KEYS": False, "START": True, "END": True, "EVENTS": True, "BYTES": True, "STATE": False},
        [
            (
                segment["name"].rpartition("/")[2],
                _keys(ranges, segment["name"]),
                f"{segment['start']:,}",
                f"{segment['end']:,}",
                events_text(segment["events"], segment["bytes"]) or "-",
                bytes_text(segment["bytes"]),
                "sealed" if segment["sealed"] else "open",
            )
            for segment in document["segments"]
        ],
    )
    for group in document.get("reader_groups", ()):
        results.line(f"reader group {group['name']}: {_position(group)}")
    for gap in document["gaps"]:
        results.line(f"gap: {gap['segment']} from {gap['start']:,} to {gap['end']:,}: {gap['reason']}")


def _merged(replaced: Sequence[dict[str, Any]]) -> str:
    """Return the generations that were merged into this one."""
    if not replaced:
        return ""
    return f"of generations {replaced[0]['generation']} to {replaced[-1]['generation']}"


def _schemas(group: dict[str, Any] | None) -> str:
    """Return how many encodings of a Schema Registry's group are recorded."""
    return "" if group is None else f"{count_text(len(group['entries']), 'encoding')} of the group {group['group']}"


def _position(group: dict[str, Any]) -> str:
    """Return where a noted reader group goes on."""
    if group["position"] is None:
        return str(group["problem"])
    held = " ".join(f"{name.rpartition('/')[2]}:{offset}" for name, offset in group["position"].items())
    return f"{held} ({group['problem']})" if group["problem"] else held


def _policy(policy: dict[str, Any], units: dict[str, str]) -> str:
    """Describe a scaling or retention policy: its kind, then the other values that are set."""
    unit = units.get(policy["kind"], "")
    rest = [
        f"{name.replace('_', ' ')} {value:,}{'' if name in _COUNTS else unit}"
        for name, value in policy.items()
        if name != "kind" and value
    ]
    return ", ".join([policy["kind"], *rest])


def _keys(ranges: Mapping[SegmentId, KeyRange], name: str) -> str:
    """Return a segment's key range, from the epochs."""
    held = ranges[SegmentId.parse(name.rpartition("/")[2])]
    return f"[{held.low:.4g}, {held.high:.4g})"
