"""Published methods, one file each, grouped by the batch they eat; ``docs/adding-a-method.md`` walks through adding one."""
