SIZES = [2, 3, 5]


def total():
    return sum(SIZES)
