"""How the events of a segment become objects of a store: keys, one module for each layout, and the window of a task."""
