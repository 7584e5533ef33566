"""Everything that tests this project; a package so that `python -m tests.servers` runs from the repository's root."""
