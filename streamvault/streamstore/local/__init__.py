"""The embedded store: streams in one folder of this machine.

``SCOPE/STREAM/stream.json`` is the stream's record, ``SCOPE/STREAM/N.#epoch.E.data`` a segment's bytes as they are, and
``….state`` how far it goes. A segment without files is empty. Names that begin with a dot are the store's own:
``.numbers/SCOPE`` has the first segment number of recreated streams, the others are drafts and remains.

It keeps Pravega's segments, epochs, numbering and framing. Its rules:

- A stream's record (``stream.json``) is replaced atomically, so scale, truncation and seal are atomic; it alone
  determines which segments are open.
- Bytes are on disk before the segment's state includes them, and the state is on disk before they are acknowledged.
- Appending to a segment requires the lock of its file. Acknowledging bytes requires the stream's lock, shared with
  other appenders; changing the record requires it exclusively; creating or deleting streams requires the scope's. A
  kill releases locks.
- Readers hold no lock: they read the record, then states and bytes, and then check that the record is unchanged.

The folder must be on a local file system: locks between machines are not supported.
"""

from streamvault.streamstore.local.store import LocalStore

__all__ = ["LocalStore"]
