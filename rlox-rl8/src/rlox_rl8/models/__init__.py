"""Models of policies and values, and the default ones."""

from rlox_rl8.models.base import (
    GenericModel,
    GenericModelBase,
    GenericRecurrentModel,
    Model,
    ModelFactory,
    RecurrentModel,
    RecurrentModelFactory,
)
from rlox_rl8.models.defaults import (
    DefaultContinuousModel,
    DefaultContinuousRecurrentModel,
    DefaultDiscreteModel,
    DefaultDiscreteRecurrentModel,
    default_models,
)

__all__ = [
    "DefaultContinuousModel",
    "DefaultContinuousRecurrentModel",
    "DefaultDiscreteModel",
    "DefaultDiscreteRecurrentModel",
    "GenericModel",
    "GenericModelBase",
    "GenericRecurrentModel",
    "Model",
    "ModelFactory",
    "RecurrentModel",
    "RecurrentModelFactory",
    "default_models",
]
