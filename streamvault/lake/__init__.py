"""Tables for query engines: Parquet files written by tasks, and the catalogs that list them."""

import os

# Before pyarrow is loaded: its allocator gives freed pages back after a second, not after 10 ms. A row group is held in
# memory until it is written; the next one had its pages cleared again, for a sixth of a handoff's processor time.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
