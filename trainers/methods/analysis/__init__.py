"""Methods that only measure."""
