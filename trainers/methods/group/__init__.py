"""Methods that change rewards, advantages or the loss of groups of completions."""
