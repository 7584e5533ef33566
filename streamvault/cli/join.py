"""`streamvault append` and `streamvault join`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from streamvault.cli.lines import earlier_text, exact_text, time_text
from streamvault.cli.options import argument, folder_as_uri, option
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.concat.reports import AppendOptions, JoinOptions, PlaceReport, StitchReport

SourcesArgument = Annotated[
    list[str],
    argument("SOURCE", "Streams and archives, in the order in which they are read.", callback=folder_as_uri),
]
IntoOption = Annotated[str, option("--into", "The stream to append to.", environment=False, metavar="TARGET")]

_SHOWN = 20
"""How many places are printed; ``--json`` has all."""


def append(sources: SourcesArgument, into: IntoOption, options: AppendOptions, *, command: Command) -> None:
    """Append streams and archives to a stream, all at once.

    Everything becomes readable together, after the stream's last event; its writers continue.
    """
    from streamvault.concat.append import append_streams

    command.call(append_streams, sources, into, options, show=_show, resumable=True)


def _show(results: Results, report: StitchReport) -> None:
    if report.unchanged:
        results.line(f"nothing new to append to {report.stream} since the last time")
    else:
        print_stitch(results, report, "append", "to")


def print_stitch(results: Results, report: StitchReport, verb: str, to: str) -> None:
    """Print what was appended or joined, or would be, and where it is.

    Args:
        results: standard output.
        report: what was done.
        verb: ``append`` or ``join``.
        to: what comes before the stream.
    """
    begun = f"finish {verb}ing" if report.resumed else verb
    done = f"would {begun}" if report.dry_run else f"{verb}ed"
    resumed = " (resumed an unfinished run)" if report.resumed and not report.dry_run else ""
    results.line(f"{done} {', '.join(report.sources)} {to} {report.stream}{resumed}")
    results.fields(
        {
            "bytes": exact_text(report.bytes),
            "of these": earlier_text(report, "written"),
            "segments": report.segments and f"{report.segments:,}",
            "merged": ", ".join(report.merged_segments),
            "left out": ", ".join(report.left_out),
            "commit": report.commit_seconds and f"{report.commit_seconds:.2f} s",
            "time": time_text(report),
        }
    )
    print_places(results, report.places)


def print_places(results: Results, places: Sequence[PlaceReport]) -> None:
    """Print where some stretches of segments are now."""
    for place in places[:_SHOWN]:
        results.line(f"  {place.segment} {place.start} to {place.end}{_landed(place)}")
    if len(places) > _SHOWN:
        results.line(f"  and {len(places) - _SHOWN:,} more (--json has all)")


def _landed(place: PlaceReport) -> str:
    if not place.target_segment:
        return ""
    return f" -> {place.target_segment} {'from' if place.exact else 'not before'} {place.offset}"


NewOption = Annotated[str, option("--into", "The stream to create.", environment=False, metavar="TARGET")]


def join(sources: SourcesArgument, into: NewOption, options: JoinOptions, *, command: Command) -> None:
    """Join streams and archives into a new stream.

    Its key ranges are those that all sources share, so the events of each key keep their order.
    """
    from streamvault.concat.append import join_streams

    command.call(join_streams, sources, into, options, show=_show_join, resumable=True)


def _show_join(results: Results, report: StitchReport) -> None:
    if report.unchanged:
        results.line(f"already joined: {report.stream} has {', '.join(report.sources)}")
    else:
        print_stitch(results, report, "join", "into")
