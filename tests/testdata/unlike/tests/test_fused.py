"""unittest-Stil; einer liest die Quelle, einer startet ein zweites python."""

import inspect
import subprocess
import unittest
from pathlib import Path

import torch
from adapterfuse import fused
from adapterfuse.layers import AdapterLinear

ELSEWHERE = """
import torch
from adapterfuse import fused
from adapterfuse.layers import AdapterLinear

fused.einschalten()
layer = AdapterLinear(torch.nn.Linear(5, 3), 2, 3.0)
print(type(layer(torch.ones(4, 5)).grad_fn).__name__)
"""


def layer_of(seed: int, bias: bool = True) -> AdapterLinear:
    torch.manual_seed(seed)
    layer = AdapterLinear(torch.nn.Linear(5, 3, bias=bias), 2, 3.0)
    torch.nn.init.normal_(layer.lora_B["standard"].weight)
    return layer.double()


class Patched(unittest.TestCase):
    def setUp(self):
        self.assertTrue(fused.einschalten())
        self.addCleanup(fused.ausschalten)


class Values(Patched):
    def compare(self, layer, x):
        got = layer(x)
        self.assertEqual(type(got.grad_fn).__name__, "LowRankProductBackward")
        seed = torch.randn_like(got)
        inputs = [x, layer.lora_A["standard"].weight, layer.lora_B["standard"].weight]
        mine = torch.autograd.grad(got, inputs, seed)
        fused.ausschalten()
        want = layer(x)
        theirs = torch.autograd.grad(want, inputs, seed)
        fused.einschalten()
        torch.testing.assert_close(got, want)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)

    def test_zwei_maße(self):
        self.compare(layer_of(0), torch.randn(4, 5, dtype=torch.float64, requires_grad=True))

    def test_jede_form(self):
        for shape in [(5,), (2, 3, 5), (1, 2, 3, 5)]:
            with self.subTest(shape=shape):
                self.compare(layer_of(1), torch.randn(*shape, dtype=torch.float64, requires_grad=True))

    def test_ohne_bias(self):
        self.compare(layer_of(2, bias=False), torch.randn(4, 5, dtype=torch.float64, requires_grad=True))


class Refusals(Patched):
    def test_abgeschaltet(self):
        layer = layer_of(3)
        layer.disable_adapters = True
        self.assertEqual(layer(torch.ones(2, 5, dtype=torch.float64)).grad_fn, None)

    @unittest.skipUnless(torch.cuda.is_available(), "keine Karte")
    def test_auf_der_karte(self):
        layer = layer_of(4).cuda()
        layer(torch.ones(2, 5, dtype=torch.float64).cuda())


class Whole(unittest.TestCase):
    def test_die_quelle(self):
        text = Path(fused.__file__).read_text(encoding="utf-8")
        self.assertIn(inspect.getsource(fused.LowRankProduct.backward).strip(), text)
        self.assertIn("∂L/∂A = s (G B)ᵀ x", text)
        self.assertEqual(text.count("ctx.save_for_backward"), 1)

    def test_in_einem_anderen_prozeß(self):
        done = subprocess.run(["python", "-c", ELSEWHERE], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "LowRankProductBackward")

    def test_aus_und_ein(self):
        before = AdapterLinear.forward
        self.assertTrue(fused.einschalten())
        self.assertFalse(fused.einschalten())
        self.assertTrue(fused.ausschalten())
        self.assertFalse(fused.ausschalten())
        self.assertIs(AdapterLinear.forward, before)
