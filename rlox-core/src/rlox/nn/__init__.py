"""Torch parts that the algorithm families share (extra ``torch``)."""

from rlox.nn.devices import find_device, torch_threads
from rlox.nn.flat import FlatOptimizer
from rlox.nn.mlp import TanhMLP
from rlox.nn.state import load_module_state, module_state

__all__ = [
    "FlatOptimizer",
    "TanhMLP",
    "find_device",
    "load_module_state",
    "module_state",
    "torch_threads",
]
