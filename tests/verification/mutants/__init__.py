"""`make mutants`: damage the product in one place at a time, and see whether a test notices."""
