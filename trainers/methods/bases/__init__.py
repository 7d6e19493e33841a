"""The standard trainers as methods: the bases of recipes."""
