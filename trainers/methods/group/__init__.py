"""Methods that shape rewards, advantages or the loss of groups of completions."""
