"""Mapping of a segment's events to objects of a store: keys, one module per layout, and the size of a task's window."""
