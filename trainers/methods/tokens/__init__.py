"""Methods that weigh or constrain single tokens."""
