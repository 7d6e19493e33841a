"""Reading completions: steps, spans, chains of equations, stories."""
