"""Learner backends: tasks, the choice of a backend, torch and torch.compile."""

from rlox.learners.compiled import make_compiled_learner, make_torch_learner
from rlox.learners.rollouts import (
    ChosenLearner,
    Learner,
    RolloutTask,
    TorchLearner,
    Unroller,
    choose_learner,
)
from rlox.learners.tasks import SeparatePerceptrons, find_learner
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayLearner,
    ReplayObjective,
    ReplayTask,
    StepResult,
    TorchReplayLearner,
    choose_replay_learner,
    frozen,
)

__all__ = [
    "ChosenLearner",
    "ChosenReplayLearner",
    "Learner",
    "Parts",
    "ReplayLearner",
    "ReplayObjective",
    "ReplayTask",
    "RolloutTask",
    "SeparatePerceptrons",
    "StepResult",
    "TorchLearner",
    "TorchReplayLearner",
    "Unroller",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "frozen",
    "make_compiled_learner",
    "make_torch_learner",
]
