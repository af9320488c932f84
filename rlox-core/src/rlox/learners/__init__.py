"""Learner backends: tasks, objectives, the choice of a backend, torch and torch.compile."""

from rlox.learners.choose import find_learner
from rlox.learners.compiled import make_compiled_learner
from rlox.learners.rollouts import (
    ChosenLearner,
    Learner,
    TorchLearner,
    choose_learner,
    make_torch_learner,
)
from rlox.learners.target_policy import TargetPolicy
from rlox.learners.tasks import Objective, RolloutTask, SeparatePerceptrons, Unroller, Update
from rlox.learners.terms import (
    AddedLoss,
    AddedLosses,
    Losses,
    PolicyTerms,
    QTerms,
    make_metrics,
    mean_terms,
    passes_target_kl,
)
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Learn,
    ReplayLearner,
    ReplayTask,
    Step,
    StepResult,
    TorchReplayLearner,
    choose_replay_learner,
)
from rlox.learners.value_objectives import (
    CategoricalQLearning,
    ConservativeQ,
    DiscreteSoftActorCritic,
    ImplicitQ,
    QLearning,
    QuantileQLearning,
    SoftActorCritic,
    TwinDelayed,
)
from rlox.learners.vtrace import VTraceActorCritic, VTraceTerms

__all__ = [
    "AddedLoss",
    "AddedLosses",
    "CategoricalQLearning",
    "ChosenLearner",
    "ChosenReplayLearner",
    "ConservativeQ",
    "DiscreteSoftActorCritic",
    "ImplicitQ",
    "Learn",
    "Learner",
    "Losses",
    "Objective",
    "PolicyTerms",
    "QLearning",
    "QTerms",
    "QuantileQLearning",
    "ReplayLearner",
    "ReplayTask",
    "RolloutTask",
    "SeparatePerceptrons",
    "SoftActorCritic",
    "Step",
    "StepResult",
    "TargetPolicy",
    "TorchLearner",
    "TorchReplayLearner",
    "TwinDelayed",
    "Unroller",
    "Update",
    "VTraceActorCritic",
    "VTraceTerms",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "make_compiled_learner",
    "make_metrics",
    "make_torch_learner",
    "mean_terms",
    "passes_target_kl",
]
