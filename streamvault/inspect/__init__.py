"""How archives and scopes are: their status and metrics, pages with charts, and checks of a set-up."""
