"""The embedded store: streams in one folder of this machine, laid out as `streamstore.local.paths` says.

It keeps Pravega's segments, epochs, numbering and framing. Its rules:

- A stream's record (``stream.json``) is replaced whole, so a scale, a truncation or a seal happens at one moment or not
  at all; which segments are open follows from it alone.
- Bytes are on disk before the segment's state says that they are there, and that is on disk before they are
  acknowledged.
- Who appends to a segment holds the lock of its file. Who acknowledges bytes holds the stream's lock together with
  other appenders, who changes the record holds it alone, who makes or deletes streams holds the scope's. A kill frees
  locks.
- Who reads holds no lock: it looks at the record, then at states and bytes, and then whether the record is the same.

The folder has to be on a local file system: locks between machines are not relied on.
"""

from streamstore.local.store import LocalStore

__all__ = ["LocalStore"]
