import pytest

from tiny.kernel import patch, unpatch


class Module:
    def forward(self, x, *args, **kwargs):
        return x * 2


@pytest.mark.parametrize("x", [1, 3])
def test_the_kernel_is_taken(x):
    module = Module()
    patch(module)
    assert getattr(module.forward(x), "node", None) == "Doubled"


def test_agrees():
    module = Module()
    patch(module)
    assert module.forward(4) == Module().forward(4)
    assert unpatch(module) == 1


@pytest.mark.gpu
@pytest.mark.skip(reason="no card")
def test_on_a_card():
    pass
