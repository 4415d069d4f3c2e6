"""Products, and the import of price lists."""
