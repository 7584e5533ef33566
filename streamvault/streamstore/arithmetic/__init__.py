"""Computes with cuts, key ranges, segment numbers and events."""
