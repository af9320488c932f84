"""NumPy reference kernels: slow, obvious, and the specification of the Rust ones."""

from rlox.reference.gae import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
)

__all__ = [
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_gae_time_major",
]
