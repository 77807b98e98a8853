"""The control's sources raise at the top of the kernel, and are otherwise the target's."""

from __future__ import annotations

import pytest

from fastlora_verify.harness.runner.raising import RAISE, _raising


@pytest.mark.parametrize(
    ("text", "scope", "expected"),
    [
        ("def f(x):\n    '''Doc.'''\n    return x\n", "f", f"def f(x):\n    {RAISE}\n    '''Doc.'''\n    return x\n"),
        ("def f(x): return x\n", "f", f"def f(x): {RAISE}\n"),
        ("def f():\r\n\treturn 1\r\n", "f", f"def f():\r\n\t{RAISE}\r\n\treturn 1\r\n"),
        (
            "def f():\n    @decorated\n    def g():\n        pass\n    return g\n",
            "f",
            f"def f():\n    {RAISE}\n    @decorated\n    def g():\n        pass\n    return g\n",
        ),
        ("é = 'é'\ndef f(): é()\n", "f", f"é = 'é'\ndef f(): {RAISE}\n"),
        ("def f():\n    return '\x0c'\n", "f", f"def f():\n    {RAISE}\n    return '\x0c'\n"),
        ("def f():\n    pass\n", "g", None),
        ("class K:\n    forward = None\n", "K.forward", None),
    ],
)
def test_raising(text: str, scope: str, expected: str | None) -> None:
    assert _raising(text, scope) == expected


def test_a_scope_inside_a_function_and_under_an_if_is_found() -> None:
    text = "def make():\n  if True:\n    class K:\n      @staticmethod\n      def forward(ctx): return 1\n"
    raising = _raising(text, "make.K.forward")
    assert raising is not None
    assert raising.endswith(f"def forward(ctx): {RAISE}\n")
    compile(raising, "k.py", "exec")
