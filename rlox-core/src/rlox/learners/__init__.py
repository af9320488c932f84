"""Learner backends: tasks, objectives, the choice of a backend, torch and torch.compile."""

from rlox.learners.compiled import make_compiled_learner
from rlox.learners.rollouts import (
    ChosenLearner,
    Learner,
    TorchLearner,
    choose_learner,
    make_torch_learner,
)
from rlox.learners.tasks import (
    Objective,
    RolloutTask,
    SeparatePerceptrons,
    Unroller,
    Update,
    find_learner,
)
from rlox.learners.terms import (
    AddedLoss,
    AddedLosses,
    Losses,
    make_metrics,
    mean_by_name,
    mean_terms,
    passes_target_kl,
)
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayLearner,
    ReplayObjective,
    ReplayTask,
    StepResult,
    TorchReplayLearner,
    choose_replay_learner,
)

__all__ = [
    "AddedLoss",
    "AddedLosses",
    "ChosenLearner",
    "ChosenReplayLearner",
    "Learner",
    "Losses",
    "Objective",
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
    "Update",
    "choose_learner",
    "choose_replay_learner",
    "find_learner",
    "make_compiled_learner",
    "make_metrics",
    "make_torch_learner",
    "mean_by_name",
    "mean_terms",
    "passes_target_kl",
]
