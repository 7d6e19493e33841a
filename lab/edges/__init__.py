"""The operators' site and the API."""
