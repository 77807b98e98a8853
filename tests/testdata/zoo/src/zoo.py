"""Switches, and a doctest.

>>> open_gate(1)
1
"""

BROKEN = False


def open_gate(x):
    """Returns x.

    >>> open_gate("a")
    'a'
    """
    return x if not BROKEN else -1
