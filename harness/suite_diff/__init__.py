"""A suite before and after a change: what was deleted, skipped or loosened. Read from source, never run."""
