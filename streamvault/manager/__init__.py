"""The streams of a scope: what is there, and what is left over; ephemeral streams; a manager with all verbs."""
