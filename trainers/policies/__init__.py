"""Loading, checking and sampling policies."""
