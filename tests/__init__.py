"""Everything that tests this project; a package so that `python -m testkit.servers` runs from the repository's root."""

import os

os.environ.setdefault("STREAMVAULT_SMALLEST_RANGE", "1")  # what the tests archive is small
