"""The catalogue: every mutation, in the order of the report."""

from fastlora_verify.mutations import (
    accumulation,
    bias_dropped,
    delegation,
    dropout_mask,
    lora_term_dropped,
    scaling,
    siblings_swapped,
)
from fastlora_verify.mutations.base import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *delegation.MUTATIONS,
    *lora_term_dropped.MUTATIONS,
    *scaling.MUTATIONS,
    *siblings_swapped.MUTATIONS,
    *bias_dropped.MUTATIONS,
    *dropout_mask.MUTATIONS,
    *accumulation.MUTATIONS,
)
