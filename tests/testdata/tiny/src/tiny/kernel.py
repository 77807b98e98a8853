"""Doubles a number with a kernel of its own; hands the call back to the module where the number is negative."""


class Context:
    def save_for_backward(self, *values):
        self.saved = values


class Doubled:
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Result(x + x, "Doubled")

    @staticmethod
    def backward(ctx, dy):
        return dy + dy

    @classmethod
    def apply(cls, x):
        return cls.forward(Context(), x)


class Result(int):
    def __new__(cls, value, node):
        self = super().__new__(cls, value)
        self.node = node
        return self


def must_delegate(x):
    return x < 0


def patch(module):
    original = module.forward

    def forward(x, *args, **kwargs):
        if must_delegate(x) or args or kwargs:
            return original(x, *args, **kwargs)
        return Doubled.apply(x)

    module.forward = forward
    return 1


def unpatch(module):
    del module.forward
    return 1
