"""The stream that a join makes: its own until everything is there, then its user's."""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress

from streamvault.common.errors import Overtaken
from streamvault.importer.ownership import first_segment_id, marked_import
from streamvault.importer.target import OTHER_NAME, TargetTaken, target_exists_error
from streamvault.joining.placing import shared_ranges
from streamvault.joining.planning import StitchPlanner
from streamvault.joining.stitching import Stitching
from streamvault.joining.target import StitchTarget
from streamvault.streamstore.errors import ScaleRefused, StreamChanged, StreamExists
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import JOIN, OWN, UNFINISHED, is_own
from streamvault.streamstore.services.transaction_log import Stage


class NewTarget:
    """The target of a join, which exists or not.

    Args:
        stream: the stream.
        planner: of the sources.
        window: maximum data a task buffers in memory (bytes).
    """

    def __init__(self, stream: OpenStream, planner: StitchPlanner, *, window: int) -> None:
        self._stream = stream
        self._planner = planner
        self._window = window
        asked = json.dumps([planner.names, planner.order, planner.distinct])
        self._join_id = f"{JOIN}{hashlib.sha256(asked.encode()).hexdigest()[:32]}"

    def find(self) -> tuple[Stitching, StitchTarget] | None:
        """Return the stitch into this join's unfinished target; None if there is no stream of that name.

        Raises:
            TargetTaken: there is another one.
        """
        described = self._stream.find()
        if described is None:
            return None
        if not marked_import(described).startswith(f"{self._join_id}."):
            raise target_exists_error(self._stream.store, described)
        return self._stitching(described)

    def is_finished(self) -> bool:
        """Return whether this join has made the stream, and nothing else was appended by the same sources since.

        Raises:
            AnotherSource: it has, of another source than there is now.
            TargetTaken: it was joined of the same sources in another order, or with other options.
        """
        described = self._stream.find()
        if described is None or is_own(described.configuration) or described.sealed:
            return False
        stitching, _ = self._stitching(described)
        record = stitching.newest()
        if record is None or record.stage is not Stage.CLOSED:
            return False
        if not self._planner.is_asked(record):
            what = "the stream was joined of these sources in another order, or with another --distinct"
            raise TargetTaken(what, where=self._stream.uri, todo=OTHER_NAME)
        self._planner.check_sources(record)
        return True

    def make(self) -> tuple[Stitching, StitchTarget]:
        """Create the stream, unless it is there, with the key ranges that all sources share.

        It is always scaled before anything is recorded. So a process that is late with its scale, which may be another
        one, finds that the segment it would replace is sealed.

        Raises:
            TargetTaken: there is another stream of that name.
        """
        # a source or a cut that is not possible is found before anything is made
        ranges = None if self._stream.find() else shared_ranges(self._planner.ranges())
        tags = (OWN, f"{UNFINISHED}{self._join_id}.{secrets.token_hex(8)}")
        with suppress(StreamExists):
            self._stream.store.create_stream_and_scope(self._stream.name, StreamConfiguration(tags=tags))
        found = self.find()
        if found is None:
            raise Overtaken("the stream was deleted meanwhile", where=self._stream.uri)
        stitching, target = found
        described = target.describe()
        if len(described.epochs) == 1 and stitching.newest() is None:
            ranges = ranges or shared_ranges(self._planner.ranges())
            with suppress(ScaleRefused):
                self._stream.store.scale(self._stream.name, list(described.tail.offsets), ranges)
        return found

    def finish(self, target: StitchTarget) -> None:
        """Make the stream its user's, unless another process has; a record says that nothing more is appended.

        Raises:
            Overtaken: it is not the stream that was filled.
        """
        described = self._stream.describe()
        if first_segment_id(described) != target.first_segment_id:
            raise Overtaken("the stream was deleted and created again meanwhile", where=self._stream.uri)
        if not marked_import(described).startswith(f"{self._join_id}."):
            return
        segments = len(described.epochs[-1].segments)
        finished = StreamConfiguration(Scaling(min_segments=segments))
        with suppress(StreamChanged):  # another process has finished it, and its user has configured it
            self._stream.store.update_stream(self._stream.name, finished, was=described.configuration)

    def _stitching(self, described: StreamDescription) -> tuple[Stitching, StitchTarget]:
        marked = marked_import(described)
        target = StitchTarget(self._stream, f"{UNFINISHED}{marked}" if marked else "")
        return Stitching(target, self._planner, own_segments=False, window=self._window), target
