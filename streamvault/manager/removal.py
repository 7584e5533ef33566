"""Deletes a stream that nobody needs any more, so that a call that comes late deletes nothing else.

First a tag fences it: it replaces the configuration that was looked at, so it fails if anybody has changed the stream
since, and whoever finds it leaves the stream alone. Then the stream is looked at once more, and again when it is sealed
and nothing can be written to it any more. Seal and deletion name its first epoch, so a stream that is created again
under its name stays.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from streamvault.importer.plan import fitting_configuration
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamConfiguration, StreamDescription
from streamvault.streamstore.own import MOST_TAGS, OWN, SWEPT
from streamvault.streamstore.store import StreamStore


def remove_stream(
    store: StreamStore, seen: StreamDescription, check: Callable[[StreamDescription], None] = lambda _: None
) -> None:
    """Fence a stream, check it, seal and delete it. A stream that is gone meanwhile is no error.

    Args:
        store: its store.
        seen: the stream, as it was when it was decided to delete it.
        check: looks at the fenced stream, and at the sealed one, and raises if it must stay.

    Raises:
        StreamChanged: it was configured, or created again, since.
        StreamSealed: it was sealed since.
    """
    with suppress(NoSuchStream, NoSuchScope):
        if not seen.sealed:  # the configuration of a sealed stream cannot change any more
            store.update_stream(seen.name, fenced(seen), was=seen.configuration)
        check(store.describe(seen.name))
        store.seal(seen.name, first=seen.epochs[0])
        check(store.describe(seen.name))
        store.delete(seen.name, first=seen.epochs[0])


def fenced(seen: StreamDescription) -> StreamConfiguration:
    """Return a stream's configuration with the tags of one that is being deleted. It does not make the store scale."""
    fitting = fitting_configuration(seen.configuration, len(seen.tail.offsets))
    others = (tag for tag in seen.configuration.tags if tag not in {OWN, SWEPT})
    return replace(fitting, tags=(OWN, SWEPT, *others)[:MOST_TAGS])
