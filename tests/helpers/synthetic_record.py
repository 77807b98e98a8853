"""A run record that has one of everything a report shows."""

from __future__ import annotations

from fastlora_verify.reports import record as rec

PIN = "tests/test_pin.py::TestTheFastPath::test_the_node_is_the_kernels"
NF4 = "tests/test_pin.py::TestNf4::test_the_node_is_the_kernels"
EDIT = """\
--- a/kernels/linear.py
+++ b/kernels/linear.py
@@ -10,3 +10,5 @@
 def forward(x):
+    if {condition}:
+        return original_forward(x)
     state = projection_state(proj, x)
"""


def killers(*arms: str, how: rec.How = "assertion") -> tuple[rec.Killer, ...]:
    message = "the kernel did not run: grad_fn is AddBackward0"
    return tuple(rec.Killer(test=f"{PIN}[{arm}]", exception="AssertionError", message=message, how=how) for arm in arms)


def arms_of(*dtypes: str) -> tuple[str, ...]:
    return tuple(f"{dtype}-{shape}-{bias}" for dtype in dtypes for shape in ("2d", "3d") for bias in "TF")


def cpu(**fields: object) -> rec.Result:
    return rec.Result(**({"skipped": 2, "reached": 25, "triggered": 25, "seconds": 0.4} | fields))  # type: ignore[arg-type]


def delegation(what: str, condition: str, results: dict[str, rec.Result], **fields: object) -> rec.MutantRecord:
    values: dict[str, object] = {
        "name": f"delegates-{what}@pkg.kernels.linear:patch.forward[{what}]",
        "mutation": f"delegates-{what}",
        "family": "the kernel silently doesn't run",
        "kernels": ("linear",),
        "file": "kernels/linear.py",
        "line": 11,
        "scope": "patch.forward",
        "gist": f"if {condition}: return original_forward(x)",
        "diff": EDIT.format(condition=condition),
        "results": results,
    }
    return rec.MutantRecord(**(values | fields))  # type: ignore[arg-type]


def seen(summary: str = "dX, seed 11: 4.93 x (limit 2 x)") -> rec.OracleRecord:
    figure = rec.Figure(name="dX, seed 11", value=4.93, limit=2.0, unit="x", ok=False)
    return rec.OracleRecord(
        oracle="float64", kernel="linear", ok=False, summary=summary, figures=(figure,), column="head:cpu"
    )


def unseen() -> rec.OracleRecord:
    return rec.OracleRecord(oracle="float64", kernel="linear", ok=True, summary="worst 1.70 x", column="head:cpu")


def the_reviews_round() -> tuple[rec.MutantRecord, ...]:
    """The mutants of the single projection's last review, with the outcomes that it had."""
    narrow = killers(*arms_of("bf16", "fp16", "mixed"))
    nf4 = rec.Killer(test=NF4, exception="AssertionError", message="grad_fn is AddBackward0")
    return (
        delegation(
            "unless-itemsize-4",
            "x.dtype.itemsize != 4",
            {
                "head:cpu": cpu(status="killed", how="assertion", passed=25, failed=12, killers=narrow),
                "head:cuda": cpu(
                    status="killed", how="assertion", passed=26, failed=13, skipped=0, killers=(*narrow, nf4)
                ),
            },
        ),
        delegation(
            "with-quant-state",
            'getattr(base.weight, "quant_state", None) is not None',
            {
                "head:cpu": cpu(status="survived", passed=37, triggered=0),
                "head:cuda": cpu(status="killed", how="assertion", passed=38, failed=1, skipped=0, killers=(nf4,)),
            },
        ),
        delegation(
            "on-mixed",
            "lora_a.dtype != x.dtype",
            {
                "head:cpu": cpu(
                    status="killed", how="assertion", passed=33, failed=4, killers=killers(*arms_of("mixed"))
                ),
                "head:cuda": cpu(
                    status="killed",
                    how="assertion",
                    passed=35,
                    failed=4,
                    skipped=0,
                    killers=killers(*arms_of("mixed")),
                ),
            },
        ),
    )


def the_other_outcomes() -> tuple[rec.MutantRecord, ...]:
    """A mutant of every class that the review's round lacks."""
    green = (rec.ReachedTest(test=f"{PIN}[fp32-3d-T]", triggered=True),)
    raised = killers("fp32-2d-T", how="exception")
    return (
        delegation(
            "under-autocast",
            "torch.is_autocast_enabled('cpu')",
            {
                "head:cpu": cpu(status="survived", passed=37, triggered=12, reached_tests=green),
                "head:cuda": cpu(status="survived", passed=39, skipped=0, triggered=12, reached_tests=green),
            },
            oracles=(seen(),),
        ),
        delegation(
            "streamed",
            "base.weight is not original_weight",
            {
                "head:cpu": cpu(status="survived", passed=37, triggered=0),
                "head:cuda": cpu(status="survived", passed=39, skipped=0, triggered=0),
            },
            oracles=(unseen(),),
        ),
        delegation(
            "merged-guard-dropped",
            "layer.merged",
            {"head:cpu": cpu(status="survived", passed=37, triggered=9)},
            allowed="a second guard in `projection_state` refuses the same call",
            family="guards",
        ),
        delegation(
            "bias-dropped",
            "bias",
            {"head:cpu": cpu(status="killed", how="exception", passed=36, failed=1, killers=raised)},
            family="wrong mathematics",
        ),
        delegation(
            "dense-saved",
            "dense",
            {"head:cpu": cpu(status="timeout", note="no end after 20 s of wall time", passed=3, skipped=0)},
            family="memory and streaming",
        ),
    )


def synthetic_record() -> rec.RunRecord:
    """The whole record."""
    controls = tuple(
        rec.Control(name=name, ok=True, summary="green", seconds=1.0)
        for name in ("unmutated", "warm equals cold", "identity", "raise")
    )
    figures = (
        rec.Figure(name="output, seed 3", value=1.0, limit=2.0, unit="x", ok=True),
        rec.Figure(name="gate lora_B, seed 7", value=1.7, limit=2.0, unit="x", ok=True),
        rec.Figure(name="dX, seed 11", value=1.0, limit=2.0, unit="x", ok=True),
    )
    return rec.RunRecord(
        tool_version="0.1.0",
        command=("fastlora-verify", "mutate", "--all", "--device", "cpu", "--device", "cuda"),
        started_at="2026-01-02T03:04:05+00:00",
        seconds=312.0,
        target=rec.TargetRecord(
            name="reference", file="reference.toml", kernels=("linear",), tests=("tests/test_pin.py",)
        ),
        environment=rec.Environment(
            python="3.11.2", torch="2.13.0", peft="0.21.2", bitsandbytes="0.50.2", cpu="Some CPU @ 3.00GHz"
        ),
        columns=(
            rec.Column(
                id="head:cpu",
                device="cpu",
                source_rev="sha256:0123456789abcdef",
                tests_rev="sha256:0123456789abcdef",
                baseline=rec.Baseline(passed=37, skipped=2, seconds=7.8),
                controls=controls,
                needs_card=(NF4, NF4.replace("node", "output")),
            ),
            rec.Column(
                id="head:cuda",
                device="cuda",
                source_rev="sha256:0123456789abcdef",
                tests_rev="sha256:0123456789abcdef",
                baseline=rec.Baseline(passed=39, seconds=9.1),
                controls=controls,
                mode="spawn",
                device_name="A Card",
            ),
        ),
        mutants=(*the_reviews_round(), *the_other_outcomes()),
        no_sites=(rec.NoSiteRecord(mutation="siblings-swapped", kernel="linear", reason="one projection only"),),
        oracles=(
            rec.OracleRecord(
                oracle="float64",
                kernel="linear",
                ok=True,
                summary="worst of 3: 1.70 x (gate lora_B, seed 7)",
                figures=figures,
                column="head:cpu",
            ),
        ),
        audit=rec.Audit(checked=5),
        saved_as="run.json",
    )
