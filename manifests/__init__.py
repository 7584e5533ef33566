"""What an archive says of itself: manifests, ranges, plans, rows of finished ranges, and the check against them."""
