"""What runs sample: stored, found, read, compared, replayed and judged by rules."""
