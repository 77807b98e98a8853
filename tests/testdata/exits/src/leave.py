import os


def leave(really):
    if really:
        os._exit(0)
    return "stayed"
