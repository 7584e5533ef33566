"""The object store in a local folder."""
