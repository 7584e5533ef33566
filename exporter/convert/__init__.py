"""An archive written again in another layout."""
