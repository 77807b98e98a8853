"""A module whose text is looked at."""

SCALE = 2


def scaled(x):
    """Twice x."""
    return x * SCALE
