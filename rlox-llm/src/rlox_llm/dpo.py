"""Direct preference optimisation (Rafailov et al. 2023, eq. 7).

Each gradient step minimises, on pairs of a chosen completion y_w and a rejected one y_l of a prompt
x,

    -log σ(β (log π(y_w|x) / π_ref(y_w|x) - log π(y_l|x) / π_ref(y_l|x)))

or another loss of :func:`rlox_llm.losses.dpo_loss`. Log-probabilities are summed over the tokens of
the completions, not of the prompts.

Deviation from the paper: Adam instead of RMSprop, without a warm-up of the step size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from rlox.envs.evaluation import EvaluationResult
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_llm.configs import DPOConfig
from rlox_llm.losses import dpo_loss
from rlox_llm.preference import DPOMetrics, Pair, PreferenceAlgorithm, parse_pairs, zip_pairs
from rlox_llm.prompts import require_fit

if TYPE_CHECKING:
    from rlox_llm.option_types import DPOArguments, Unpack


@final
class DPO(PreferenceAlgorithm):
    """Direct preference optimisation of a language model.

    Args:
        ref_model: the reference, a frozen copy; ``None`` if the model has an adapter or comes from
            a folder.
        dataset: pairs for ``train(n)``, see :func:`rlox_llm.preference.parse_pairs`.
    """

    name = "dpo"
    config_class = DPOConfig
    config: DPOConfig
    return_name = "accuracy"
    arguments = ("model", "ref_model", "beta", "learning_rate", "callbacks", "logger")
    if TYPE_CHECKING:

        def __init__(self, *given: Any, **options: Unpack[DPOArguments]) -> None: ...

    def parse(self, rows: Any) -> list[Pair]:
        """Return preference pairs; see :func:`rlox_llm.preference.parse_pairs`."""
        pairs = parse_pairs(rows, self.policy.device, self.texts)
        for i, pair in enumerate(pairs):
            require_fit(self.policy, f"pairs[{i}]", pair.prompt, [pair.chosen, pair.rejected])
        if not self.config.precompute_ref_log_probs:
            return pairs
        return self.with_reference_logps(pairs, self.config.batch_size)

    def compute_loss(
        self, prompt: Any, chosen: Any, rejected: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, with gradient, and its metrics, without learning.

        Args:
            prompt: (B, P) token ids, or B rows of any lengths.
            chosen: (B, C) the preferred completions; each ends with its first EOS.
            rejected: (B, R) the rejected completions.
        """
        pairs = zip_pairs(prompt, chosen, rejected, self.policy.device, self.texts)
        with self.learning():
            loss, terms = self.pairs_loss(pairs)
        metrics = {name: float(value) for name, value in vars(terms).items()}
        return loss, {"loss": float(loss.detach()), **metrics}

    def train_step(self, prompt: Any, chosen: Any, rejected: Any) -> dict[str, float]:
        """Take one gradient step on pairs; arguments as in :meth:`compute_loss`."""
        return self.step_on(zip_pairs(prompt, chosen, rejected, self.policy.device, self.texts))

    def iterate(self, hooks: Hooks) -> DPOMetrics:
        """Take one gradient step."""
        hooks.enter("learn")
        return DPOMetrics(**self.learn_pairs(hooks, self.next_rows()))

    @torch.no_grad()
    def judge(self, rows: Any, deterministic: bool, seed: int | None) -> EvaluationResult:
        """Return 1 for each pair whose chosen completion has the higher reward, else 0."""
        with self.policy.mode(training=False):
            logps = [self.pairs_logps([pair]) for pair in rows]
        right = [float(dpo_loss(**each, beta=self.config.beta)[1].accuracy) for each in logps]
        return EvaluationResult(np.array(right), np.array([len(pair.chosen) for pair in rows]))
