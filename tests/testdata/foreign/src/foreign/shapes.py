"""Patchers of other shapes, right and wrong ones, for the kernels of this package."""

import functools

import torch
from foreign.kernel import fused_forward, patch
from torch.autograd.function import once_differentiable


def one_layer(layer):
    """Of a single LoRA layer; another module is refused."""
    if not hasattr(layer, "lora_A"):
        raise TypeError("not a LoRA layer")
    layer.forward = fused_forward(layer, type(layer).forward.__get__(layer))
    return True


def with_class(cls):
    """Of a class: every layer of it, for ever."""
    if "plain_forward" in vars(cls):
        return
    cls.plain_forward = cls.forward

    def forward(self, x, *args, **kwargs):
        return fused_forward(self, self.plain_forward)(x, *args, **kwargs)

    cls.forward = forward


def with_more(model, config, adapter_name, *, verbose):
    """Wants more than a model, and says by its names what."""
    assert config is not None and adapter_name == "default" and verbose is False
    patch(model)


def with_riddle(model, flavour):
    """Wants more than a model, and does not say what."""


def llama_only(model):
    """Of a model that PEFT wrapped and that has decoder layers; counts the blocks."""
    layers = model.base_model.model.model.layers
    for layer in layers:
        layer.mlp.forward = mlp_forward(layer.mlp)
    return len(layers)


def unpatch_llama(model):
    """Takes the MLPs' forwards away."""
    for layer in model.base_model.model.model.layers:
        del layer.mlp.forward
    return 1


def projections_of_llama(model):
    """The projections of decoder layers' attentions."""
    for layer in model.base_model.model.model.layers:
        patch(layer.self_attn)


def nothing(model):
    """Finds nothing that it knows."""
    return 0


def without_kernel(model):
    """Assigns a forward that runs no Function."""
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module.forward = type(module).forward.__get__(module)
    return 1


def raises(model):
    """Does not get far."""
    raise LookupError("no such thing")


def renames(model):
    """Wraps every LoRA layer in a module of its own: the parameters get other names."""

    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return fused_forward(self.inner, self.inner.forward)(x)

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if hasattr(child, "lora_A"):
                setattr(module, name, Wrapped(child))


@functools.cache
def mlp_function():
    class FusedMLP(torch.autograd.Function):
        """The block computed again under autograd; nothing but its inputs is saved."""

        @staticmethod
        def forward(ctx, block, x, *tensors):
            ctx.block = block
            ctx.save_for_backward(x, *tensors)
            return block(x, *tensors)

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            inputs = [t.detach().requires_grad_(need) for t, need in zip(ctx.saved_tensors, ctx.needs_input_grad[1:])]
            with torch.enable_grad():
                out = ctx.block(*inputs)
            wanted = [t for t in inputs if t.requires_grad]
            found = iter(torch.autograd.grad(out, wanted, dy, allow_unused=True))
            return None, *(next(found) if t.requires_grad else None for t in inputs)

    return FusedMLP


def mlp_forward(mlp):
    """The forward of a gated MLP with three LoRA layers."""
    original = type(mlp).forward.__get__(mlp)

    def forward(x):
        layers = [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        if not all(hasattr(layer, "lora_A") for layer in layers) or torch.is_autocast_enabled("cpu"):
            return original(x)
        if any(layer.get_base_layer().weight.dtype != x.dtype for layer in layers):
            return original(x)
        if mlp.training and any(layer.lora_dropout["default"].__class__ is torch.nn.Dropout for layer in layers):
            return original(x)
        scales = [layer.scaling["default"] for layer in layers]
        tensors = []
        for layer in layers:
            base = layer.get_base_layer()
            bias = base.bias if base.bias is not None else base.weight.new_zeros(base.weight.shape[0])
            tensors += [base.weight, bias, layer.lora_A["default"].weight, layer.lora_B["default"].weight]
        return mlp_function().apply(functools.partial(block, scales), x, *tensors)

    return forward


def block(scales, x, *tensors):
    """down(silu(gate(x)) * up(x))."""
    gate, up = (projected(x, *tensors[4 * i : 4 * i + 4], scales[i]) for i in (0, 1))
    return projected(torch.nn.functional.silu(gate) * up, *tensors[8:], scales[2])


def projected(x, weight, bias, a, b, scale):
    """One projection."""
    term = torch.nn.functional.linear(torch.nn.functional.linear(x.to(a.dtype), a), b) * scale
    return (torch.nn.functional.linear(x, weight, bias) + term).to(x.dtype)


@functools.cache
def dropping_function():
    class FusedProjection(torch.autograd.Function):
        """Takes X and dropped X: the mask's own derivative is left to autograd."""

        @staticmethod
        def forward(ctx, x, dropped, weight, bias, a, b, scale):
            hidden = dropped @ a.t()
            ctx.scale = scale
            ctx.save_for_backward(weight, a, b, dropped, hidden)
            return torch.nn.functional.linear(x, weight, bias) + scale * (hidden @ b.t())

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            weight, a, b, dropped, hidden = ctx.saved_tensors
            dh = ctx.scale * (dy @ b)
            return dy @ weight, dh @ a, None, None, dh.t() @ dropped, ctx.scale * (dy.t() @ hidden), None

    return FusedProjection


def models_dropout(model):
    """Dropout is modelled without anybody asking for it."""
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module.forward = dropping_forward(module, type(module).forward.__get__(module))


def dropping_forward(layer, original):
    """The forward of a layer in one dtype, dropout included."""

    def forward(x):
        base, a, b = layer.get_base_layer(), layer.lora_A["default"].weight, layer.lora_B["default"].weight
        if base.weight.dtype != x.dtype or a.dtype != x.dtype or torch.is_autocast_enabled("cpu"):
            return original(x)
        flat = x.reshape(-1, x.shape[-1])
        p = getattr(layer.lora_dropout["default"], "p", 0.0)
        dropped = torch.nn.functional.dropout(flat, p, layer.training)
        out = dropping_function().apply(flat, dropped, base.weight, base.bias, a, b, layer.scaling["default"])
        return out.reshape(*x.shape[:-1], out.shape[-1])

    return forward
