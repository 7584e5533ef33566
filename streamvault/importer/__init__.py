"""Import: ownership of the target, scales replayed, segments filled in parallel, every range verified."""
