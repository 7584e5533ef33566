"""Export: a plan made once, ranges moved by tasks, boundaries proved, one generation committed."""
