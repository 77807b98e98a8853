"""The catalogue: every mutation, in the order of the report."""

from fastlora_verify.mutations import (
    accumulation,
    bias_dropped,
    cast_order,
    compute_dtype,
    delegation,
    dropout_mask,
    lora_term_dropped,
    output_dtype,
    scaling,
    siblings_swapped,
    silu_slope,
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
    *cast_order.MUTATIONS,
    *output_dtype.MUTATIONS,
    *compute_dtype.MUTATIONS,
)
