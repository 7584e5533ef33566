"""Reads the ranges of a stream that are whole events, and proves that they are those of the archived stream."""
