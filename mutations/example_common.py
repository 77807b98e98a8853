"""What the small kernels of the examples share: quant states taken apart, the sum, guards, state."""

from __future__ import annotations

COMMON = '''
import torch
from bitsandbytes.functional import QuantState, dequantize_4bit
from peft.tuners.lora import LoraLayer
from torch.autograd.function import once_differentiable


def opened(state):
    """A quant state as (tensors, plan); tensors may go through `save_for_backward`."""
    if state is None:
        return [], None
    #[ opened
    second = state.state2
    tensors = [state.absmax, state.code]
    if second is not None:
        tensors = [*tensors, state.offset, second.absmax, second.code]
    inner = None if second is None else (second.blocksize, second.dtype)
    #] opened
    return tensors, {"shape": state.shape, "size": state.blocksize, "kind": state.quant_type, "inner": inner}


def closed(tensors, plan, dtype):
    #[ closed
    second = None
    if plan["inner"] is not None:
        second = QuantState(tensors[3], code=tensors[4], blocksize=plan["inner"][0], dtype=plan["inner"][1])
    return QuantState(
        tensors[0], code=tensors[1], shape=plan["shape"], blocksize=plan["size"], quant_type=plan["kind"],
        dtype=dtype, offset=tensors[2] if second is not None else None, state2=second,
    )
    #] closed


def unpacked(kernel, tensors, plan, dtype):
    if plan is None:
        return kernel.to(dtype)
    return dequantize_4bit(kernel.view(-1, 1), closed(tensors, plan, dtype)).to(dtype)


def joined(base, code, up, factor):
    #[ helper
    wide = torch.promote_types(base.dtype, code.dtype)
    return torch.add(base.to(wide), code.matmul(up.t()), alpha=factor).to(base.dtype)
    #] helper


def packing(bottom):
    #[ packing
    state = getattr(bottom.weight, "quant_state", None)
    if state is None:
        state = getattr(bottom, "quant_state", None)
    #] packing
    return state


def working(bottom, inp):
    #[ working
    chosen = getattr(bottom, "compute_dtype", None)
    #] working
    return inp.dtype if chosen is None else chosen


def plain(layer):
    #[ predicate
    if not isinstance(layer, LoraLayer):
        return False
    if type(layer).__name__ not in ("Linear", "Linear4bit"):
        return False
    return True
    #] predicate


#[ opt-in
def pieces_of(layer, inp, modelled=False):
    #] opt-in
    """What a kernel needs of one layer; None if PEFT must run."""
    if not plain(layer):
        return None
    #[ guard
    if layer.merged or layer.disable_adapters:
        return None
    if len(layer.active_adapters) != 1:
        return None
    #] guard
    name = layer.active_adapters[0]
    if name not in layer.lora_A:
        return None
    #[ dropout guard
    if not modelled and layer.lora_dropout[name].__class__.__name__ != "Identity":
        return None
    #] dropout guard
    bottom = layer.get_base_layer()
    tensors, plan = opened(packing(bottom))
    return {
        "kernel": bottom.weight,
        "shift": bottom.bias,
        "down": layer.lora_A[name].weight,
        "up": layer.lora_B[name].weight,
        "factor": layer.scaling[name],
        "rate": getattr(layer.lora_dropout[name], "p", 0.0) if layer.training else 0.0,
        "tensors": tensors,
        "plan": plan,
        "dtype": working(bottom, inp),
    }
'''
