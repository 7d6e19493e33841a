"""Methods that choose or rewrite prompts, or decide how completions are generated."""
