"""Conversion of an archive to another layout."""
