"""Learner backends: tasks, the choice of a backend, torch and torch.compile."""

from rlox.learners.added import AddedLoss, AddedLosses, Losses
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
    ReplayLearner,
    ReplayTask,
    Step,
    TorchReplayLearner,
    choose_replay_learner,
)

__all__ = [
    "AddedLoss",
    "AddedLosses",
    "ChosenLearner",
    "ChosenReplayLearner",
    "Learner",
    "LearningTask",
    "Losses",
    "PolicyTerms",
    "QTerms",
    "ReplayLearner",
    "ReplayTask",
    "Step",
    "TorchLearner",
    "TorchReplayLearner",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "make_compiled_learner",
    "make_torch_learner",
    "mean_terms",
]
