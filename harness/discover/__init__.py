"""Reads a repository's source, never importing it, and writes the table that describes it as a target."""
