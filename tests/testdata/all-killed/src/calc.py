"""Sums and signs."""


def add(a, b):
    """The sum."""
    return a + b


def sign(x):
    """-1, 0 or 1."""
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0
