"""Learner backends: tasks, the choice of a backend, torch and torch.compile."""

from rlox.learners.compiled import make_compiled_learner
from rlox.learners.rollouts import (
    ChosenLearner,
    Learner,
    LearningTask,
    TorchLearner,
    choose_learner,
    find_learner,
    make_torch_learner,
)
from rlox.learners.terms import PolicyTerms, QTerms, mean_terms
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

__all__ = [
    "CategoricalQLearning",
    "ChosenLearner",
    "ChosenReplayLearner",
    "ConservativeQ",
    "DiscreteSoftActorCritic",
    "ImplicitQ",
    "Learn",
    "Learner",
    "LearningTask",
    "PolicyTerms",
    "QLearning",
    "QTerms",
    "QuantileQLearning",
    "ReplayLearner",
    "ReplayTask",
    "SoftActorCritic",
    "Step",
    "StepResult",
    "TorchLearner",
    "TorchReplayLearner",
    "TwinDelayed",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "make_compiled_learner",
    "make_torch_learner",
    "mean_terms",
]
