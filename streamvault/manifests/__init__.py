"""An archive's metadata: manifests, ranges, plans, rows of finished ranges; and checks of an archive against them."""
