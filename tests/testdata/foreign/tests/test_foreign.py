import torch
from foreign.kernel import patch
from peft import LoraConfig, inject_adapter_in_model


def test_the_kernel_runs_and_agrees_with_peft():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    inject_adapter_in_model(LoraConfig(r=2, target_modules=["0"], init_lora_weights=False), model)
    x = torch.randn(5, 4)
    want = model(x)
    patch(model)
    got = model(x)
    assert type(got.grad_fn.next_functions[0][0]).__name__ == "FusedProjectionBackward"
    torch.testing.assert_close(got, want)
