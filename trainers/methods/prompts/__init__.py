"""Methods that choose prompts, rewrite them, or decide how completions are generated."""
