"""The catalogue: every mutation, in the order of the report."""

from fastlora_verify.mutations import delegation
from fastlora_verify.mutations.base import Mutation

MUTATIONS: tuple[Mutation, ...] = (*delegation.MUTATIONS,)
