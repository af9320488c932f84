"""Torch parts that the algorithm families share (extra ``torch``)."""

from rlox.nn.devices import (
    acting,
    find_device,
    flush_denormals,
    keep_freed_memory,
    standard_normal,
    torch_threads,
    uniform,
)
from rlox.nn.distributions import ActionHead, Categorical, DiagonalGaussian, Distribution, Joint
from rlox.nn.encoders import (
    CombinedEncoder,
    ConvolutionalEncoder,
    EncoderKind,
    OneHotEncoder,
    VectorEncoder,
    make_encoder,
    set_compute_dtype,
)
from rlox.nn.layer_data import LayerData, layer_data
from rlox.nn.memory import Memory, MemoryKind
from rlox.nn.mlp import EnsembleMLP, NoisyLinear, ReluMLP, TanhMLP, draw_noise, orthogonal, silence
from rlox.nn.optimizers import (
    AdaptiveClip,
    Clip,
    FlatOptimizer,
    ModuleOptimizer,
    flatten_parameters,
    make_optimizer,
)
from rlox.nn.state import (
    frozen,
    learning_mode,
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
