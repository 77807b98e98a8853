"""The catalogue: every mutation, in the order of the report.

Where two make the same text, the one listed first has it: the guards, which are general, come after the lifecycle.
"""

from fastlora_verify.mutations import (
    accumulation,
    bias_dropped,
    cast_order,
    compute_dtype,
    delegation,
    dropout_mask,
    first_order,
    gemms,
    guards,
    handoff,
    instruments,
    lifecycle,
    lora_term_dropped,
    output_dtype,
    quant_state,
    saved,
    scaling,
    siblings_swapped,
    silu_slope,
    weight_captured,
)
from fastlora_verify.mutations.base import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *delegation.MUTATIONS,
    *silu_slope.MUTATIONS,
    *lora_term_dropped.MUTATIONS,
    *scaling.MUTATIONS,
    *siblings_swapped.MUTATIONS,
    *bias_dropped.MUTATIONS,
    *dropout_mask.MUTATIONS,
    *accumulation.MUTATIONS,
    *first_order.MUTATIONS,
    *cast_order.MUTATIONS,
    *output_dtype.MUTATIONS,
    *compute_dtype.MUTATIONS,
    *quant_state.MUTATIONS,
    *saved.MUTATIONS,
    *weight_captured.MUTATIONS,
    *gemms.MUTATIONS,
    *lifecycle.MUTATIONS,
    *handoff.MUTATIONS,
    *guards.MUTATIONS,
    *instruments.MUTATIONS,
)
