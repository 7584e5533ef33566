"""Export: create a plan, move ranges in tasks, prove their boundaries, commit one generation; and conversion."""
