"""Python code that Rust replaces; :mod:`rlox_native.digests` finds edits of it."""

from __future__ import annotations


def _leaves(names: str) -> dict[str, str]:
    """Return what uses no other replaced code."""
    return dict.fromkeys(names.split(), "")


REPLACED: dict[str, dict[str, str]] = {
    "rlox.losses": {
        "ClippedSurrogate.loss": "standardize evaluate_actions ppo_loss",
        "PolicyGradient.loss": "standardize evaluate_actions",
        "passes_target_kl": "KL_TOLERANCE mean_kl",
        **_leaves(
            "evaluate_actions ppo_loss standardize AddedLosses.add KL_TOLERANCE mean_kl mean_terms"
        ),
    },
    "rlox.learners.transitions": {
        "Parts.minimize": "self.added_losses.add",
        "ReplayObjective.act": "self.mode",
        "frozen": "",
    },
    "rlox.batches.rollout": {
        "RolloutBatch.sample_minibatches": "self.minibatches",
        "RolloutBatch.minibatches": "_parts self._fields split_sequences sequence_fields",
        "add_values": "_rows",
        **_leaves("RolloutBatch._fields _parts _rows"),
    },
    "rlox.kernels.reference.gae": {
        "compute_vtrace": "Rollout.parse Rollout.successor",
        "compute_gae_time_major": "",
    },
    "rlox.kernels.reference.arrays": {"Rollout.parse": "", "Rollout.successor": ""},
    "rlox.batches.transitions": {"_take": "", "sequence_fields": "_take", "split_sequences": ""},
    "rlox.rollouts.algorithm": {
        "minimize_over_epochs": "RolloutBatch.sample_minibatches passes_target_kl mean_terms"
    },
    "rlox.rollouts.collector": {
        "RolloutCollector.unroll": "self._acting_with_values self._learnt_rewards self.envs.step "
        "self._begin self._action_rows.to_env UnrollWriter.observe UnrollWriter.act "
        "UnrollWriter.add UnrollWriter.unroll",
        **_leaves(
            "RolloutCollector._begin RolloutCollector._acting_with_values "
            "RolloutCollector._learnt_rewards UnrollWriter.observe UnrollWriter.act "
            "UnrollWriter.add UnrollWriter.unroll"
        ),
    },
    "rlox.spaces.rows": {"ActionRows.to_env": "", "require_rewards": ""},
    "rlox.envs.running": {"RunningEnvs.step": "require_rewards"},
    "rlox.nn.optimizers": {
        "FlatOptimizer": "self.step",
        "FlatOptimizer.step": "self.backward self.apply",
        **_leaves("FlatOptimizer.backward FlatOptimizer.apply"),
    },
    "rlox.nn.devices": {"standard_normal": "", "uniform": ""},
    "rlox.nn.mlp": {
        "MLP": "self.forward",
        "EnsembleMLP": "self.forward",
        "Memory": "self.forward",
        "Memory.forward": "self._run",
        "Memory._run": "self._call",
        **_leaves("MLP._run EnsembleMLP.forward Memory._call"),
        "MLP.forward": "self._run",
    },
    "rlox.nn.distributions": {
        "Categorical": "self.__init__ self.sample self.mode self.log_prob self.entropy",
        "Categorical.sample": "_empty_like self._log_prob",
        "Categorical.log_prob": "self._log_prob",
        "Categorical.entropy": "_over_columns",
        "Categorical._log_prob": "_over_columns",
        "DiagonalGaussian": "self.__init__ self.sample self.mode self.log_prob self.entropy",
        "DiagonalGaussian.sample": "_empty_like self._log_density",
        "DiagonalGaussian.log_prob": "self._log_density",
        "ActionHead": "self.forward _Choices.forward _Gaussian.forward",
        "ActionHead.forward": "Categorical",
        "_Choices.forward": "Categorical",
        "_Gaussian.forward": "DiagonalGaussian",
        **_leaves(
            "Categorical.__init__ Categorical.mode DiagonalGaussian.__init__ DiagonalGaussian.mode "
            "DiagonalGaussian.entropy DiagonalGaussian._log_density _empty_like _over_columns"
        ),
    },
    "rlox.networks.actor_critics": {
        **dict.fromkeys(
            ("DiscretePolicy", "ContinuousPolicy", "ActorCriticPolicy"),
            "self.get_action_and_logprob self.get_value self.deterministic self.evaluate_actions "
            "self.get_logprob_and_entropy self.actor self.critic",
        ),
        "Policy.get_action_and_logprob": "self.encode self.distribution",
        "Policy.get_value": "self.encode self.value",
        "Policy.get_logprob_and_entropy": "self.encode self.distribution",
        "Policy.evaluate_actions": "self.encode self.distribution self.value",
        "Policy.deterministic": "self.encode self.distribution",
        "DiscretePolicy.distribution": "Categorical",
        "ContinuousPolicy.distribution": "DiagonalGaussian",
        "ActorCriticPolicy.distribution": "self.head",
        "RecurrentPolicy": "self.step self.evaluate_actions self.actor_memory self.critic_memory "
        "self.head self.actor self.critic",
        "Recurrent.step": "self._run",
        "Recurrent.evaluate_actions": "self._run",
        **_leaves(
            "DiscretePolicy.encode DiscretePolicy.value ContinuousPolicy.encode "
            "ContinuousPolicy.value ActorCriticPolicy.encode ActorCriticPolicy.value "
            "RecurrentPolicy._run"
        ),
    },
    "rlox.networks.policies": {
        "TwinQNetwork": "self.forward self.net",
        "ValueNetwork": "self.forward self.net",
        "DiscreteQNetwork": "self.forward self.net",
        "DuelingQNetwork": "self.forward self.shared self.value self.advantage",
        "DeterministicPolicy": "self.forward self.deterministic self.net",
        "DeterministicPolicy.deterministic": "self.forward",
        "GaussianPolicy": "self.log_prob self.net",
        "GaussianPolicy.log_prob": "self.deterministic",
        "SquashedGaussianPolicy": "self.get_action_and_logprob self.deterministic self.net",
        "SquashedGaussianPolicy.get_action_and_logprob": "self._mean_and_log_std standard_normal "
        "_squashed_log_prob",
        "SquashedGaussianPolicy.deterministic": "self._mean_and_log_std",
        **_leaves(
            "polyak_update TwinQNetwork.forward ValueNetwork.forward DiscreteQNetwork.forward "
            "DuelingQNetwork.forward DeterministicPolicy.forward GaussianPolicy.deterministic "
            "SquashedGaussianPolicy._mean_and_log_std _squashed_log_prob"
        ),
    },
    "torch.nn.modules.container": {"Sequential": ""},
    "rlox_marl.policies": {
        "TeamPolicy": "self.evaluate_actions self.get_logprob_and_entropy",
        "TeamPolicy.distribution": "self.actor.layers self.actor.head",
        "TeamPolicy.value": "self.critic.layers",
        "TeamPolicy.encode": "",
    },
    "rlox_offpolicy.targets": _leaves(
        "at_actions clipped_double_values smoothed_actions soft_values td_targets"
    ),
    "rlox_offpolicy.networks": {"Temperature": "self.value", **_leaves("Temperature.value draw")},
    "rlox_offpolicy.sac": {
        "SoftActorCritic.learn": "draw soft_values td_targets frozen polyak_update",
        "SoftActorCritic.act": "draw",
    },
    "rlox_offpolicy.td3": {
        "TwinDelayed.learn_values": "mu standard_normal smoothed_actions clipped_double_values "
        "td_targets",
        "TwinDelayed.learn_policy": "mu frozen polyak_update",
        "TwinDelayed.mode": "mu",
        "mu": "",
    },
    "rlox_offpolicy.dqn": {
        "QLearning.learn": "self.outputs at_actions self.values self.targets self.losses",
        "QLearning.act": "self.outputs self.values",
        "QLearning.targets": "td_targets",
        **_leaves("QLearning.outputs QLearning.values QLearning.losses"),
    },
    "rlox_offline.losses": {
        "td3_bc_actor_loss": "bc_loss",
        **_leaves("advantage_weights bc_loss cql_penalty critic_loss expectile_loss"),
    },
    "rlox_offline.networks": {"LogScale": "self.forward", "LogScale.forward": ""},
    "rlox_offline.td3_bc": {
        "TwinDelayedCloning.learn_values": "critic_loss self.bellman_targets",
        "TwinDelayedCloning.learn_policy": "frozen td3_bc_actor_loss polyak_update",
        "TwinDelayedCloning.bellman_targets": "standard_normal",
    },
    "rlox_offline.iql": {
        "ImplicitQ.learn": "expectile_loss advantage_weights critic_loss polyak_update"
    },
    "rlox_offline.cql": {
        "ConservativeQ.learn_policy": "frozen self._step_policy",
        "ConservativeQ.learn_values": "critic_loss self.bellman_targets self.penalty polyak_update",
        "ConservativeQ.penalty": "uniform cql_penalty",
        **_leaves("ConservativeQ._step_policy ConservativeQ.bellman_targets"),
    },
    "rlox_rl8.losses": {"clipped_losses": "", "loss_and_terms": "clipped_losses"},
    "rlox_rl8.algorithms": {"Algorithm._forward": ""},
    "rlox_rl8.policies": {"Policy.sample": "self._outputs", "GenericPolicyBase._outputs": ""},
    "rlox_rl8.distributions": {
        **dict.fromkeys(("Categorical", "Normal"), "self.__init__ self.logp self.entropy"),
        **_leaves(
            "Categorical.__init__ Categorical.logp Categorical.entropy Normal.__init__ "
            "TorchDistributionWrapper.logp TorchDistributionWrapper.entropy"
        ),
    },
    "rlox_rl8.models": {
        **dict.fromkeys(
            ("DefaultDiscreteModel", "DefaultContinuousModel"),
            "self.forward self.value_function self.encoder.forward self.head.forward",
        ),
        **_leaves(
            "_Encoder.forward _Head.forward _Perceptrons.forward _Perceptrons.value_function"
        ),
    },
}
"""Replaced code by module: functions, constants, and classes whose objects Rust replaces.

Next to each is the replaced code that it uses, as Python would look it up: names of the module, and
attributes of ``self``, which is the class if there is no object.
"""
