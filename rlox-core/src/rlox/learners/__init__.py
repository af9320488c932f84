"""Learner backends: tasks, objectives, the choice of a backend, torch and torch.compile."""

from rlox.learners.added import AddedLoss, AddedLosses, Losses
from rlox.learners.choose import find_learner
from rlox.learners.compiled import make_compiled_learner
from rlox.learners.policy_objectives import ClippedSurrogate, PolicyGradient, PolicyGradientTerms
from rlox.learners.rollouts import (
    ChosenLearner,
    Learner,
    TorchLearner,
    choose_learner,
    make_torch_learner,
)
from rlox.learners.tasks import Objective, RolloutTask, Unroller, Update
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
    "ClippedSurrogate",
    "Learner",
    "Losses",
    "Objective",
    "PolicyGradient",
    "PolicyGradientTerms",
    "PolicyTerms",
    "QTerms",
    "ReplayLearner",
    "ReplayTask",
    "RolloutTask",
    "Step",
    "TorchLearner",
    "TorchReplayLearner",
    "Unroller",
    "Update",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "make_compiled_learner",
    "make_torch_learner",
    "mean_terms",
]
