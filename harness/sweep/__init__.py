"""One test of the target under many seeds, or many times."""
