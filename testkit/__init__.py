"""Tools that tests and benchmarks run on: servers, the explorer of schedules, the proofs, builders of scenes."""

import os

os.environ.setdefault("STREAMVAULT_SMALLEST_RANGE", "1")  # what the tests archive is small
