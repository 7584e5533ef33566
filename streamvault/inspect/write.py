"""The *report* command."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from streamvault.common.errors import Failed, Usage
from streamvault.common.options import verb
from streamvault.common.units import count_text
from streamvault.inspect.history import MAX_MARKS, ArchiveHistory, gather_history, read_history, spans_of
from streamvault.inspect.reports import PageReport, ReportOptions
from streamvault.inspect.status import unarchived_bytes
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.verbs.show import find_archives
from streamvault.objectstore.store import InvalidRoot
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.cuts import sealed_ends
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.uri import is_stream, open_stream

if TYPE_CHECKING:
    from streamvault.inspect.page import ReportPage


def replace_file(file: Path, text: str) -> None:
    """Write a file whole or not at all: beside it, then renamed. A pipe or a device (``/dev/stdout``) is written to.

    Raises:
        Failed: it cannot be written.
    """
    try:
        if file.exists() and not file.is_file():  # root could put a file in the place of /dev/null
            file.write_text(text, encoding="utf-8")
            return
        file = file.resolve()  # a link stays one
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        try:
            made.write_text(text, encoding="utf-8")
            made.replace(file)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failed(f"the file cannot be written ({reason})", where=str(file), todo="Use another folder.") from None


MAX_SECTIONS = 25
"""Archives of a root that get a section with charts; of more, the page has the table only."""


@verb(ReportOptions)
def write_report(place: str, options: ReportOptions) -> PageReport:
    """Draw an archive, the archives below a root, or a stream.

    The page is one HTML file with its scripts in it. Of archives, only the records are read: manifests, one at a time,
    decisions and marks.

    Args:
        place: ``ROOT/SCOPE/STREAM``, a root, or a stream's URI.
        output: the HTML file, which is replaced; None for none.
        svg: a folder for the charts as SVG files; None for none.
        stream: the archived stream, to also report what of it is not archived yet; empty for no such figure.

    Raises:
        Usage: neither `output` nor `svg` is given, or the packages that draw are not installed.
        Failed: there is nothing, or the file cannot be written.
        Problem: the records cannot be read.
    """
    if options.output is None and options.svg is None:
        raise Usage("nothing to write", todo="Give --output FILE for a page, or --svg FOLDER for the charts.")
    check_packages()
    made, report = _stream_page(place, options) if is_stream(place) else _archive_page(place, options)
    return _written(made, report, options)


def check_packages() -> None:
    """Check that the optional packages that draw are installed.

    Raises:
        Usage: they are not.
    """
    try:
        from streamvault.inspect import page  # noqa: F401, PLC0415  (imports them, which takes a second)
    except ImportError as error:
        todo = "pip install 'streamvault[report]'"
        raise Usage("report requires packages that are not installed", where=str(error), todo=todo) from None


def _archive_page(place: str, options: ReportOptions) -> tuple[ReportPage, PageReport]:
    from streamvault.inspect.page import ReportPage, archive_section  # noqa: PLC0415

    found = _archive_at(place)
    if found is None:
        return _root_page(place, options)
    archive, listing = found
    history = read_history(archive, listing=listing)
    unarchived = None
    if options.stream:
        with open_stream(options.stream) as stream:
            unarchived = unarchived_bytes(stream, history.newest)
    section = archive_section("archive", str(archive.stream), history, unarchived)
    size = count_text(len(history.points), "generation")
    page = ReportPage(title=f"Archive of {archive.stream}", subtitle=size, sections=[section])
    return page, PageReport(
        archives_found=1, generations_read=len(history.points), unarchived=unarchived, warnings=history.warnings
    )


def _archive_at(place: str) -> tuple[Archive, Listing] | None:
    """Return the archive at an address, with its generations in force; None if there is none, and it may be a root."""
    with suppress(InvalidRoot, InvalidName):
        archive = Archive.open(place)
        listing = archive.listing()
        if listing.newest or listing.orphans:
            return archive, listing
    return None


def _root_page(place: str, options: ReportOptions) -> tuple[ReportPage, PageReport]:
    from streamvault.inspect.page import ReportPage, archive_section, index_row  # noqa: PLC0415

    if options.stream:
        raise Usage("--stream applies to one archive", where=place, todo="Give the archive: ROOT/SCOPE/STREAM.")
    numbers = count(1)

    def gather(archive: Archive, listing: Listing, manifests: Iterable[Manifest]) -> ArchiveHistory | None:
        number = next(numbers)
        return gather_history(archive, listing, manifests, MAX_MARKS // number) if number <= MAX_SECTIONS else None

    held = [(one.summary, one.archive, one.gathered) for one in find_archives(place, gather=gather)]
    found = [summary for summary, *_ in held]
    if not found:
        raise NoSuchArchive("no archives", where=place, todo="'streamvault ls ROOT' lists the archives.")
    root = RootAddress.parse(place).resolve().uri
    names = [one.name_below(root) for one in found]
    drawn = [
        (at, archive)
        for at, (one, archive, _) in enumerate(held)
        if archive and not (one.problem or one.table) and one.generations_in_force
    ]
    warnings = [f"{one.archive}: {one.problem}" for one in found if one.problem]
    if len(drawn) > MAX_SECTIONS:
        warnings.append(f"charts are drawn for up to {MAX_SECTIONS} archives; there are {len(drawn):,}: name one")
        drawn = []
    sections, generations = [], 0
    for at, archive in drawn:
        most, gathered = MAX_MARKS // len(drawn), held[at][2]
        # others were gathered that cannot be read
        history = gathered.complete(most) if gathered else read_history(archive, most)
        generations += len(history.points)
        sections.append(archive_section(f"a{at}", names[at], history))
    anchors = {at: f"a{at}" for at, _ in drawn}
    index = [index_row(anchors.get(at, ""), names[at], one) for at, one in enumerate(found)]
    page = ReportPage(
        title=f"Archives below {root}", subtitle=count_text(len(found), "archive"), sections=sections, index=index
    )
    return page, PageReport(archives_found=len(found), generations_read=generations, warnings=tuple(warnings))


def _stream_page(place: str, options: ReportOptions) -> tuple[ReportPage, PageReport]:
    from streamvault.inspect.page import ReportPage, stream_section  # noqa: PLC0415

    if options.stream:
        raise Usage("--stream applies to an archive", where=place, todo="Give the archive: ROOT/SCOPE/STREAM.")
    with open_stream(place) as stream:
        described = stream.describe()
        written = sealed_ends(stream.store, stream.name, list(described.ranges()))
        totals = {segment: (end, None) for segment, end in written.items()}
        section = stream_section("stream", stream.uri, described, list(spans_of(described.epochs, totals)))
    page = ReportPage(title=f"Stream {described.name}", subtitle="as it is now", sections=[section])
    return page, PageReport()


def _written(page: ReportPage, report: PageReport, options: ReportOptions) -> PageReport:
    charts = tuple(_svgs(page, options.svg)) if options.svg else ()
    if options.output:
        replace_file(options.output, page.html())
    return replace(report, file=str(options.output or ""), charts=charts)


def _svgs(page: ReportPage, folder: Path) -> Iterator[str]:
    from streamvault.inspect.page import svg_of  # noqa: PLC0415

    for section in page.sections:
        for chart in section.charts:
            file = folder / section.title / f"{chart.name}.svg"
            replace_file(file, svg_of(chart))
            yield str(file)
