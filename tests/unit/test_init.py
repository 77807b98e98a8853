"""Reading a repository into a target table: on our own kernels, and on one of another build."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastlora_verify.harness.discover.read import read_repository
from fastlora_verify.harness.discover.write import target_table
from fastlora_verify.harness.errors import NoKernel
from fastlora_verify.harness.exit_code import ExitCode
from fastlora_verify.harness.targets.target_file import load_target

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """\
import torch

_MADE = None


def _scaled(out, hidden, b, s):
    return torch.add(out, hidden @ b.t(), alpha=s)


def build():
    global _MADE
    if _MADE is not None:
        return _MADE

    class Fused(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx, x, w, a, b, s):
            h = x @ a.t()
            ctx.s = s
            ctx.save_for_backward(x, w, a, b, h)
            return _scaled(x @ w.t(), h, b, s)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, dy):
            x, w, a, b, h = ctx.saved_tensors
            dh = ctx.s * (dy @ b)
            return dy @ w + dh @ a, None, dh.t() @ x, ctx.s * (dy.t() @ h), None

    _MADE = Fused
    return _MADE


def _supported(layer):
    return hasattr(layer, "lora_A")


def _why_not(layer):
    if layer.merged:
        return "merged"
    return None


def _wrap(original):
    fused = build()

    def run(self, x, *args, **kwargs):
        if args or kwargs or _why_not(self) is not None:
            return original(self, x, *args, **kwargs)
        name = self.active_adapters[0]
        return fused.apply(
            x, self.get_base_layer().weight, self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
        )

    return run


def enable(cls):
    if not _supported(cls):
        return 0
    cls.forward = _wrap(cls.forward)
    return 1


def disable(cls, original):
    del cls.forward
    return 1
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "src" / "fast").mkdir(parents=True)
    (tmp_path / "src" / "fast" / "__init__.py").write_text("")
    (tmp_path / "src" / "fast" / "lora_kernel.py").write_text(KERNEL)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_kernel.py").write_text(
        "from fast.lora_kernel import enable\n\n\ndef test_it():\n    assert enable\n"
    )
    (tmp_path / "tests" / "test_other.py").write_text("def test_other():\n    assert 1\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--cov=fast"\nmarkers = ["card: needs CUDA"]\n'
    )
    return tmp_path


def test_a_repository_of_another_build_is_read(repository: Path) -> None:
    found = read_repository(repository)
    (kernel,) = found.kernels
    roles = kernel.roles
    assert roles.function == "fast.lora_kernel:build.Fused"
    assert roles.entries == ("fast.lora_kernel:_wrap.run",)
    assert set(roles.guards) == {"fast.lora_kernel:_supported", "fast.lora_kernel:_why_not"}
    assert roles.helpers == ("fast.lora_kernel:_scaled",)
    assert (roles.patcher, roles.unpatcher) == ("fast.lora_kernel:enable", "fast.lora_kernel:disable")
    assert (roles.kind, roles.node) == ("linear", "FusedBackward")
    assert found.tests == ("tests/test_kernel.py",)
    assert found.gpu_marker == "card"
    assert found.pytest_args == ("--no-cov",)
    assert found.source_roots == ("src",)


def test_what_is_written_is_a_target(repository: Path) -> None:
    text = target_table(read_repository(repository))
    (repository / "fastlora-verify.toml").write_text(text)
    target = load_target(repository)
    assert [kernel.name for kernel in target.kernels] == ["linear"]
    assert target.root == repository


def test_doubts_are_comments(repository: Path) -> None:
    path = repository / "src" / "fast" / "lora_kernel.py"
    path.write_text(KERNEL.partition("def enable")[0])
    text = target_table(read_repository(repository))
    assert "# unsure: patcher: no function" in text
    assert "patcher" not in tomllib.loads(text)["kernel"][0]


def test_our_own_kernels_are_read_as_their_table_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kernels", tmp_path / "src" / "fastlora_verify" / "kernels")
    described = {kernel.node: kernel for kernel in load_target(None).kernels}
    found = {kernel.roles.node: kernel.roles for kernel in read_repository(tmp_path).kernels}
    assert found.keys() == described.keys()
    for node, roles in found.items():
        mine = described[node]
        assert roles.kind == mine.kind
        assert (roles.function, roles.patcher, roles.unpatcher) == (mine.function, mine.patcher, mine.unpatcher)
        assert roles.entries == mine.entries
        assert set(mine.guards) <= set(roles.guards)


def test_a_repository_without_a_kernel_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    with pytest.raises(NoKernel, match="no autograd Function"):
        read_repository(tmp_path)


def test_the_command_writes_once_and_keeps_what_is_there(repository: Path) -> None:
    from fastlora_verify.harness.cli import app

    output = repository / "fastlora-verify.toml"
    runner = CliRunner()
    first = runner.invoke(app, ["init", str(repository), "-o", str(output)], standalone_mode=False)
    assert first.exception is None
    text = output.read_text()
    again = runner.invoke(app, ["init", str(repository), "-o", str(output)], standalone_mode=False)
    assert again.exception is not None and "is there already" in str(again.exception)
    assert again.exception.exit_code == ExitCode.USAGE  # type: ignore[attr-defined]
    assert output.read_text() == text


def test_what_cannot_be_read_as_source_is_passed_over(tmp_path: Path) -> None:
    head = "import torch\nclass K(torch.autograd.Function):\n    lora_A = "
    (tmp_path / "deep.py").write_text(f"{head}{'-' * 5000}1\n")
    (tmp_path / "nul.py").write_text(f"{head}'\0'\n")
    (tmp_path / "torn.py").write_text(f"{head}(\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(NoKernel, match="is applied in its 3 modules"):
        read_repository(tmp_path)


def test_a_source_is_read_by_the_encoding_that_it_declares(repository: Path) -> None:
    path = repository / "src" / "fast" / "lora_kernel.py"
    path.write_bytes(("# coding: latin-1\r\n# größer\r\n" + KERNEL.replace("\n", "\r\n")).encode("latin-1"))
    (kernel,) = read_repository(repository).kernels
    assert kernel.roles.function == "fast.lora_kernel:build.Fused"
    path.write_bytes(("# größer\n" + KERNEL).encode("latin-1"))
    with pytest.raises(NoKernel, match=r"in its 1 module \(src/fast/lora_kernel\.py is not text and was left out\)"):
        read_repository(repository)


def test_a_repository_without_tests_gets_a_table_that_can_be_listed(repository: Path) -> None:
    shutil.rmtree(repository / "tests")
    text = target_table(read_repository(repository))
    assert "# unsure: tests: no test file mentions enable, lora_kernel" in text
    assert text.endswith('"FusedBackward"\n')
    (repository / "fastlora-verify.toml").write_text(text)
    assert load_target(repository).tests == ()


def test_an_original_that_a_patcher_keeps_is_no_entry(repository: Path) -> None:
    path = repository / "src" / "fast" / "lora_kernel.py"
    layer = "class Layer:\n    def forward(self, x):\n        return x\n\n\n_KEPT = []\n\n\n"
    text = KERNEL.replace("def enable(cls):", f"{layer}def enable(cls=Layer):\n    _KEPT.append(Layer.forward)")
    path.write_text(text)
    (kernel,) = read_repository(repository).kernels
    assert kernel.roles.entries == ("fast.lora_kernel:_wrap.run",)
    assert kernel.roles.patcher == "fast.lora_kernel:enable"


def test_the_owner_is_the_class_that_is_patched(repository: Path) -> None:
    path = repository / "src" / "fast" / "lora_kernel.py"
    head = "from peft.tuners.lora import Linear, Conv2d as Convolution\n" + KERNEL
    path.write_text(head.replace("cls.forward = _wrap(cls.forward)", "Linear.forward = _wrap(Linear.forward)"))
    assert read_repository(repository).kernels[0].roles.owner == ("peft.tuners.lora:Linear",)
    asked = "for m in cls.modules():\n        if isinstance(m, (Linear, Convolution)):\n            "
    path.write_text(head.replace("cls.forward = _wrap(cls.forward)", f"{asked}m.forward = _wrap(m.forward)"))
    owner = read_repository(repository).kernels[0].roles.owner
    assert set(owner) == {"peft.tuners.lora:Linear", "peft.tuners.lora:Conv2d"}
    path.write_text(KERNEL)
    assert read_repository(repository).kernels[0].roles.owner == ()


@pytest.mark.parametrize(("folder", "root"), [("python", "python"), ("lib", "lib"), ("other", ".")])
def test_packages_may_lie_in_other_folders(folder: str, root: str, repository: Path) -> None:
    (repository / "src").rename(repository / folder)
    path = repository / folder / "fast" / "lora_kernel.py"
    path.write_text(
        KERNEL.replace(
            "class Fused(torch.autograd.Function):", "class Fused(\n        torch.autograd.Function,\n    ):"
        )
    )
    found = read_repository(repository)
    assert found.source_roots == (root,)
    assert found.modules == ("fast.lora_kernel" if root != "." else "other.fast.lora_kernel",)


def test_a_table_written_elsewhere_names_the_repository_from_there(repository: Path, tmp_path: Path) -> None:
    from fastlora_verify.harness.cli import run

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(["init", str(repository), "-o", str(elsewhere / "target.toml")]) == 0
    assert load_target(elsewhere / "target.toml").root == repository.resolve()
