"""The files of an archive's metadata: manifests, plans, rows and the index of ranges."""
