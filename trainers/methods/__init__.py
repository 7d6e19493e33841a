"""Published methods, one file each, grouped by the batch they act on; ``docs/adding-a-method.md`` walks through adding one."""
