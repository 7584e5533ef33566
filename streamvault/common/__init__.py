"""Shared by every package: errors, progress, reports, and the text forms of sizes and times."""
