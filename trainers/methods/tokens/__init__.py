"""Methods that weight or constrain individual tokens."""
