"""An archive: its generations, what they hold, and what is written and deleted there."""
