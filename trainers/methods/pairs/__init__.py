"""Methods on preference pairs."""
