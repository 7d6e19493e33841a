"""Small files of every known format, with made-up content in the exact structure: what each is recognised as and what becomes of its rows."""
