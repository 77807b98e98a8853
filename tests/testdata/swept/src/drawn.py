import random

LIMIT = 0.9


def drawn():
    return random.random()
