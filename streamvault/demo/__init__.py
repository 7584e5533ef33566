"""The demo: archive, restore and query a stream on this machine alone, and verify the results."""
