"""Merge adjacent small generations."""
