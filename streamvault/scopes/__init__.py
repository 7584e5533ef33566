"""Runs a verb for each stream of a scope, or for each whose name matches a pattern, or of a declared list."""
