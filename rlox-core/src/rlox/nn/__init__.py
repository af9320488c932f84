"""Torch parts that the algorithm families share (extra ``torch``)."""

from rlox.nn.clipping import AdaptiveClip, Clip
from rlox.nn.devices import (
    acting,
    find_device,
    flush_denormals,
    keep_freed_memory,
    standard_normal,
    torch_threads,
    uniform,
)
from rlox.nn.distributions import Categorical, DiagonalGaussian, Distribution, Joint
from rlox.nn.encoders import (
    CombinedEncoder,
    ConvolutionalEncoder,
    EncoderKind,
    OneHotEncoder,
    VectorEncoder,
    make_encoder,
    set_compute_dtype,
)
from rlox.nn.flat import FlatOptimizer, flatten_parameters
from rlox.nn.heads import ActionHead
from rlox.nn.layer_data import LayerData, layer_data
from rlox.nn.memory import Memory, MemoryKind
from rlox.nn.mlp import TanhMLP, orthogonal
from rlox.nn.modes import learning_mode
from rlox.nn.module_optimizer import ModuleOptimizer, make_optimizer
from rlox.nn.noisy import NoisyLinear, draw_noise, silence
from rlox.nn.relu import EnsembleMLP, ReluMLP
from rlox.nn.state import (
    frozen,
    load_module_state,
    load_parts_state,
    module_digest,
    module_state,
    parts_state,
    require_digest,
)

__all__ = [
    "ActionHead",
    "AdaptiveClip",
    "Categorical",
    "Clip",
    "CombinedEncoder",
    "ConvolutionalEncoder",
    "DiagonalGaussian",
    "Distribution",
    "EncoderKind",
    "EnsembleMLP",
    "FlatOptimizer",
    "Joint",
    "LayerData",
    "Memory",
    "MemoryKind",
    "ModuleOptimizer",
    "NoisyLinear",
    "OneHotEncoder",
    "ReluMLP",
    "TanhMLP",
    "VectorEncoder",
    "acting",
    "draw_noise",
    "find_device",
    "flatten_parameters",
    "flush_denormals",
    "frozen",
    "keep_freed_memory",
    "layer_data",
    "learning_mode",
    "load_module_state",
    "load_parts_state",
    "make_encoder",
    "make_optimizer",
    "module_digest",
    "module_state",
    "orthogonal",
    "parts_state",
    "require_digest",
    "set_compute_dtype",
    "silence",
    "standard_normal",
    "torch_threads",
    "uniform",
]
