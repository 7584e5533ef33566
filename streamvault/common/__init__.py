"""Shared by every package: errors, options, progress, reports, waiting, and the text forms of sizes and times."""
