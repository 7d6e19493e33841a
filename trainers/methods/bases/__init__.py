"""The standard trainers as methods: what a recipe is stacked on."""
