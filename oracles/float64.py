"""The 2x rule: against float64 on the same weights, a kernel errs at most twice as much as unpatched PEFT.

A 16-bit kernel cannot be held to a fixed tolerance: three chained bf16 products differ from PEFT's by more
than any tolerance that would still see a fault. Both are therefore measured against the same block in float64
(4-bit weights dequantised), and the ratio of the largest errors is judged for the output, dX and every dA and
dB, seed by seed. The scale is a power of two, which no arm rounds: with another one, two right kernels that
scale different factors differ by more than 2x in one of fifty tensors.

The largest error is one element's luck, so beside it stands a steadier figure: per tensor the ratio of root mean
square errors, median over the seeds. Right kernels that round at other places than PEFT stay under 1.05 with it,
outputs at 1.00, since kernel and PEFT run the same base product; one rounding more (a LoRA term cast before it is
added, SiLU's slope in 16 bits) lies between 1.07 and 1.4. It takes an adapter as large as the base to show, which
the sample models have, and a dozen seeds: over fewer it is reported and not judged.

With it in place a lucky seed need not be feared: the four right SwiGLU and QKV kernels of the tests cross 2x in up
to one seed in fifty, and reached 3.1. So one seed in twelve may cross, not beyond 4x. The three seeds of the NF4
fixture leave no room for one.

Where a kernel that is only described rounds is its own affair: with 1.2 in the steady figure one seed in four
crosses 2x in some tensor. There the rule, at most twice, holds for the steady figure, over a dozen seeds on NF4 too;
single seeds are told, and judged only beyond what luck can make of the steady figure.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import Arms, Make, need_device, three_arms
from fastlora_verify.oracles.base import (
    Figure,
    Fixture,
    Options,
    Oracle,
    OracleResult,
    judged,
    measured,
)
from fastlora_verify.oracles.fixture import swiglu_block
from fastlora_verify.oracles.instruments import TWICE, error_ratios

ID = "float64"
DENSE_SEEDS = tuple(range(12))
NF4_SEEDS = (3, 7, 11)
MORE_NF4_SEEDS = (*NF4_SEEDS, 0, 1, 2, 4, 5, 6, 8, 9, 10)
NF4_BIAS = "nf4, bias"
OUTPUT_RMS_LIMIT = 1.05
GRADIENT_RMS_LIMIT = 1.1
SEEDS_FOR_A_MEDIAN = 12
SEEDS_PER_LUCKY_ONE = 12
LUCK = 4.0
RATIO = "x PEFT's error"


@dataclass(frozen=True)
class Run:
    """One seed of one layout."""

    seed: int
    ratios: dict[str, float]  # of the largest errors, by tensor
    rms: dict[str, float]  # of the root mean square errors
    equal: int  # tensors that are PEFT's bit for bit


def check(info: KernelInfo, options: Options) -> OracleResult:
    """Dense mixed and NF4, each over its seeds (or over `options.seeds`)."""
    figures = measured(ID, partial(all_figures, info, options))
    worst = max((f.value for f in figures if isinstance(f.value, float) and f.limit == TWICE), default=0.0)
    return judged(ID, info.name, figures, f"worst ratio {worst:.2f}")


def all_figures(info: KernelInfo, options: Options) -> list[Figure]:
    """Both layouts' figures."""
    need_device(options.device)
    dense = layout_figures(info, "dense mixed", options.seeds or DENSE_SEEDS, options)
    seeds = options.seeds or (NF4_SEEDS if info.declared else MORE_NF4_SEEDS)
    figures = dense + layout_figures(info, "nf4", seeds, options)
    if info.declared:
        return figures
    # A kernel of unknown make may treat the bias of a 4-bit layer by itself, which no float64 sample shows.
    return figures + layout_figures(info, NF4_BIAS, options.seeds or DENSE_SEEDS, options)


def layout_figures(info: KernelInfo, layout: str, seeds: tuple[int, ...], options: Options) -> list[Figure]:
    """Every figure of one layout: per seed the worst tensor, per tensor the worst seed, and the whole."""
    runs: list[Run] = []
    failed: list[Figure] = []
    for seed in seeds:
        make = maker(info, layout, seed, options)
        failed += measured(f"{layout}, seed {seed}", partial(run_seed, info, make, seed, runs))
    if not runs:
        return failed
    return failed + (figures_of(layout, runs) if info.declared else told_figures(layout, runs))


def run_seed(info: KernelInfo, make: Make, seed: int, runs: list[Run]) -> list[Figure]:
    """Appends one seed's run to `runs`."""
    arms = three_arms(info, make)
    ratios = error_ratios(arms.got, arms.reference, arms.exact)
    equal = sum(torch.equal(arms.got[name], arms.reference[name]) for name in ratios)
    runs.append(Run(seed, ratios, rms_ratios(arms), equal))
    return []


def figures_of(layout: str, runs: list[Run]) -> list[Figure]:
    """The seeds one by one, all together, and tensor by tensor."""
    over = [run for run in runs if not max_ratio(run) <= TWICE]
    allowed = len(runs) // SEEDS_PER_LUCKY_ONE
    excused = len(over) <= allowed and all(max_ratio(run) <= LUCK for run in over)
    figures = [seed_figure(layout, run, None if excused else False) for run in runs]
    figures += summary_figures(layout, runs, over, excused)
    for tensor in runs[0].ratios:
        figures.append(worst_figure(layout, tensor, runs))
        figures.append(rms_figure(layout, tensor, runs))
    return figures


def told_figures(layout: str, runs: list[Run]) -> list[Figure]:
    """The same of a kernel that nothing is declared of: the rule holds for the steady figure."""
    over = [run for run in runs if not max_ratio(run) <= TWICE]
    steady = {tensor: steady_ratio(tensor, runs) for tensor in runs[0].ratios}
    figures = []
    for run in runs:
        lucky = all(ratio <= LUCK * min(TWICE, max(1.0, steady[tensor])) for tensor, ratio in run.ratios.items())
        figures.append(seed_figure(layout, run, None if lucky else False))
    figures += summary_figures(layout, runs, over, None if over else True)
    for tensor, ratio in steady.items():
        figures.append(worst_figure(layout, tensor, runs))
        name, drift = rms_name(layout, tensor, runs), rms_limit(tensor)
        ok = ratio <= TWICE if len(runs) >= SEEDS_FOR_A_MEDIAN else None
        figures.append(Figure(name, ratio, TWICE, RATIO, ok, drift=drift))
    return figures


def summary_figures(layout: str, runs: list[Run], over: list[Run], ok: bool | None) -> list[Figure]:
    """All seeds together."""
    every = [ratio for run in runs for ratio in run.ratios.values()]
    allowed = len(runs) // SEEDS_PER_LUCKY_ONE
    return [
        Figure(f"{layout}: seeds over {TWICE:g}x", len(over), allowed, f"of {len(runs)}", ok),
        Figure(f"{layout}: median ratio", statistics.median(every), unit=RATIO),
        Figure(f"{layout}: tensors equal to PEFT's", sum(run.equal for run in runs), unit=f"of {len(every)}"),
    ]


def worst_figure(layout: str, tensor: str, runs: list[Run]) -> Figure:
    """The seed at which a tensor errs most."""
    run = max(runs, key=lambda run: nan_as_inf(run.ratios[tensor]))
    name = f"{layout}: {short(tensor)}, worst at seed {run.seed}"
    return Figure(name, run.ratios[tensor], unit=RATIO, key=f"{layout}: {short(tensor)}, worst")


def seed_figure(layout: str, run: Run, over: bool | None) -> Figure:
    """The worst tensor of one seed against the rule; `over` is the verdict on a seed that breaks it."""
    tensor, ratio, key = worst_of(run.ratios), max_ratio(run), f"{layout}, seed {run.seed}"
    return Figure(f"{key}: {short(tensor)}", ratio, TWICE, RATIO, True if ratio <= TWICE else over, key=key)


def max_ratio(run: Run) -> float:
    """The worst ratio of a seed, NaN if one is."""
    return run.ratios[worst_of(run.ratios)]


def rms_figure(layout: str, tensor: str, runs: list[Run]) -> Figure:
    """The steady figure; judged when there are enough seeds."""
    name, ratio, limit = rms_name(layout, tensor, runs), steady_ratio(tensor, runs), rms_limit(tensor)
    if len(runs) < SEEDS_FOR_A_MEDIAN:
        return Figure(name, ratio, unit=RATIO)
    return Figure(name, ratio, limit, RATIO, ratio <= limit)


def rms_name(layout: str, tensor: str, runs: list[Run]) -> str:
    """The steady figure's name."""
    return f"{layout}: {short(tensor)}, rms, median of {len(runs)} seeds"


def rms_limit(tensor: str) -> float:
    """What the steady figure of a kernel that rounds as often as PEFT stays under."""
    return OUTPUT_RMS_LIMIT if tensor.startswith("out") else GRADIENT_RMS_LIMIT


def steady_ratio(tensor: str, runs: list[Run]) -> float:
    """Median over the seeds of the ratios of root mean squares."""
    return statistics.median(nan_as_inf(run.rms[tensor]) for run in runs)


def rms_ratios(arms: Arms) -> dict[str, float]:
    """Root mean square error of the kernel as a multiple of PEFT's, by tensor."""

    def total(tensor: Tensor, exact: Tensor) -> float:
        return float((tensor - exact).square().sum())

    ratios = {}
    for name, exact in arms.exact.items():
        ours, theirs = total(arms.got[name], exact), total(arms.reference[name], exact)
        if theirs > 0:
            ratios[name] = math.sqrt(ours / theirs)
        else:
            ratios[name] = 1.0 if ours == 0 else math.inf
    return ratios


def maker(info: KernelInfo, layout: str, seed: int, options: Options) -> Make:
    """How the block of one seed is built: a sample model, or for SwiGLU on NF4 the published fixture.

    `options.fixture` asks for the fixture in both layouts of a SwiGLU kernel.
    """
    nf4 = layout != "dense mixed"
    if info.kind == "swiglu-mlp" and layout != NF4_BIAS and (nf4 or options.fixture):
        fixture = options.fixture or Fixture()
        return partial(swiglu_block, seed, fixture, nf4=nf4, device=options.device)
    sample = Sample(
        seed=seed,
        dtype="bf16" if nf4 else "mixed",
        base="nf4-nested" if nf4 else "dense",
        shape=(4, 16),
        bias=layout == NF4_BIAS,
        ranks=(4,) * len(info.projections),
        alpha=8,
        device=options.device,
    )
    return partial(build, info, sample)


def worst_of(ratios: dict[str, float]) -> str:
    """The tensor with the largest ratio; a NaN is larger than any number."""
    return max(ratios, key=lambda tensor: nan_as_inf(ratios[tensor]))


def nan_as_inf(value: float) -> float:
    """The value to sort by."""
    return math.inf if math.isnan(value) else value


def short(tensor: str) -> str:
    """`d mlp.gate_proj.lora_B.default.weight` as `dB of gate_proj`."""
    owner, _, rest = tensor.partition(".lora_")
    return f"d{rest[0]} of {owner.rpartition('.')[2].removeprefix('d ')}" if rest else tensor


ORACLE = Oracle(
    id=ID,
    title="Errors against float64, as multiples of PEFT's",
    sees="wrong mathematics, and precision lost beyond PEFT's, in output, dX, dA, dB; dense mixed and NF4",
    blind_to="a kernel that does not run, memory, streaming, fp16, a fault smaller than bf16's rounding",
    check=check,
)
