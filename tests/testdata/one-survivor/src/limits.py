def clip(x, top):
    if x > top:
        return top
    return x


def double(x):
    return 2 * x
