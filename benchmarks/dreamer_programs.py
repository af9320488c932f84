"""One update of DreamerV3 in each library, as programs for processes of their own.

Each defines ``train``, which does a number of updates, and ``versions``. ``SIZE`` stands for a
size as in :data:`dreamer_sizes.SIZES`, ``BACKEND`` and ``DEVICE`` for rlox's options, ``OPTIONS``
and ``COMPILED`` for sheeprl's.
"""

RLOX = """
import gymnasium, numpy as np, rlox, torch
from rlox.nn import flush_denormals

class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}

s = SIZE
agent = rlox.make(
    "dreamer_v3", env=Frames if s["images"] else "CartPole-v1", seed=0, backend=BACKEND,
    deter_dim=s["deter"], hidden=s["hidden"], stoch_dim=s["stoch"], stoch_classes=s["classes"],
    units=s["units"], depth=s["depth"], bins=s["bins"], imagination_horizon=s["horizon"],
    batch_size=s["batch"], seq_len=s["length"], learning_starts=2000, torch_threads=1,
    device=DEVICE,
)
agent.train(2000)
torch.set_num_threads(1)
versions = {"rlox": rlox.__version__}

def train(updates):
    with flush_denormals():
        for _ in range(updates):
            batch = agent.replay.draw()
            agent.replay.give_back(batch, agent.learner.step("learn", batch, 3e-4))
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return updates
"""

SHEEPRL = """
import hydra, numpy as np, torch
from gymnasium import spaces
from hydra import compose, initialize_config_module
from importlib.metadata import version
from lightning.fabric import Fabric
from omegaconf import OmegaConf
from sheeprl.algos.dreamer_v3.utils import Moments
from sheeprl.algos.dreamer_v3_5.agent import build_agent
from sheeprl.algos.dreamer_v3_5.dreamer_v3_5 import train as update, update_target_critic
from sheeprl.utils.metric import MetricAggregator
from sheeprl.utils.utils import dotdict

torch.set_num_threads(1)
MetricAggregator.disabled = True
s = SIZE
compiling = ["algo.compile.enabled=COMPILED", "algo.compile.mode=default"]
with initialize_config_module("sheeprl.configs", version_base="1.3"):
    config = compose("config", overrides=OPTIONS + compiling)
config = dotdict(OmegaConf.to_container(config, resolve=True))
fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
shape = (3, 64, 64) if s["images"] else (4,)
space = spaces.Box(0, 255, shape, np.uint8) if s["images"] else spaces.Box(-1, 1, shape)
model, actor, critic, target, _ = build_agent(
    fabric, (2,), False, config, spaces.Dict({"seen": space}))
optimizer = fabric.setup_optimizers(hydra.utils.instantiate(
    config.algo.optimizer, _convert_="all",
    params=[*model.parameters(), *actor.parameters(), *critic.parameters()]))
found = config.algo.actor.moments
moments = Moments(found.decay, found.max, found.percentile.low, found.percentile.high)
versions = {"sheeprl": version("sheeprl")}
steps = (s["length"] + 1, s["batch"])
none = torch.zeros(*steps, 1)

def train(updates):
    for _ in range(updates):
        batch = {
            "seen": torch.randint(256, (*steps, *shape)).to(torch.uint8)
            if s["images"] else torch.randn(*steps, *shape),
            "actions": torch.nn.functional.one_hot(torch.randint(2, steps), 2).float(),
            "rewards": torch.ones(*steps, 1), "terminated": none, "truncated": none,
            "is_first": none.clone(), "deter": torch.zeros(*steps, s["deter"]).half(),
            "stoch": torch.zeros(*steps, s["stoch"], dtype=torch.uint8),
        }
        update(fabric, config, model, actor, critic, target, optimizer, moments, batch, None, (2,))
        update_target_critic(critic, target, 0.02)
    return updates
"""

TORCHRL = """
import torch, torchrl
from tensordict import TensorDict
from tensordict.nn import TensorDictModule as Part, TensorDictSequential as Parts
from torchrl.data import Composite, OneHot, Unbounded
from torchrl.envs.model_based import DreamerEnv
from torchrl.modules import (
    DreamerV3DiscreteActor, DreamerV3ImageDecoder, DreamerV3ImageEncoder, DreamerV3MLP,
    RSSMPosteriorV3, RSSMPriorV3, RSSMRolloutV3, SymExpTwoHot, WorldModelWrapper)
from torchrl.modules.functional import symlog
from torchrl.objectives import (
    DreamerV3ActorLoss, DreamerV3Loss, DreamerV3ModelLoss, DreamerV3ValueLoss, SoftUpdate)
from torchrl.objectives.utils import ValueEstimators
from torchrl.trainers.algorithms.dreamer_v3 import DreamerV3Optimizer

torch.set_num_threads(1)
versions = {"torchrl": torchrl.__version__}
s = SIZE
latent = s["stoch"] * s["classes"]
features = latent + s["deter"]
states = [("next", "state"), ("next", "belief")]
tokens = [("next", "encoded_latents")]

def layers(outputs, depth, inputs=features):
    return DreamerV3MLP(inputs, outputs, depth=depth, num_cells=s["units"])

if s["images"]:
    shape, decoder = (3, 64, 64), DreamerV3ImageDecoder(features, depth=s["depth"])
    encoder = DreamerV3ImageEncoder(depth=s["depth"])
    encoder = [Part(encoder, [("next", "seen")], tokens)]
    size = encoder[0].module(torch.zeros(1, *shape, dtype=torch.uint8)).shape[-1]
else:
    shape, decoder, size = (4,), layers(4, 3), s["units"]
    encoder = [Part(symlog, [("next", "seen")], [("next", "squashed")]),
               Part(layers(None, 3, 4), [("next", "squashed")], tokens)]
sizes = dict(hidden_dim=s["hidden"], rnn_hidden_dim=s["deter"], num_categoricals=s["stoch"],
             num_classes=s["classes"], unimix=0.01)
prior = RSSMPriorV3(action_shape=(2,), action_dim=2, recurrent_model="block_gru", **sizes)
posterior = RSSMPosteriorV3(obs_embed_dim=size, use_rms_norm=True, **sizes)
reward, goes_on = layers(s["bins"], 1), layers(1, 1)
decode = SymExpTwoHot(s["bins"])
world = Parts(
    *encoder,
    RSSMRolloutV3(
        Part(prior, ["state", "belief", "action"], [("next", "prior_logits"), *states]),
        Part(posterior, [("next", "belief"), *tokens], [("next", "posterior_logits"), states[0]])),
    Part(decoder, states, [("next", "reco_pixels")]),
    Part(reward, states, [("next", "reward_logits")]),
    Part(decode, [("next", "reward_logits")], [("next", "reward")]),
    Part(goes_on, states, [("next", "continue_pred")]))
env = DreamerEnv(
    WorldModelWrapper(
        Part(prior, ["state", "belief", "action"], ["_", "state", "belief"]),
        Parts(Part(reward, ["state", "belief"], ["logits_of_reward"]),
              Part(decode, ["logits_of_reward"], ["reward"]))),
    prior_shape=(latent,), belief_shape=(s["deter"],))
env.observation_spec = Composite(state=Unbounded(latent), belief=Unbounded(s["deter"]))
env.state_spec = env.observation_spec.clone()
env.action_spec, env.reward_spec = OneHot(2), Unbounded((1,))
actor = DreamerV3DiscreteActor(features, 2, depth=3, num_cells=s["units"])
critic = Parts(Part(layers(s["bins"], 3), ["state", "belief"], ["state_value_logits"]),
               Part(decode, ["state_value_logits"], ["state_value"]))
continuing = Parts(Part(goes_on, ["state", "belief"], ["continue_logits"]),
                   Part(torch.sigmoid, ["continue_logits"], ["continuation"]))
model_loss = DreamerV3ModelLoss(
    world, lambda_continue=1.0, kl_mode="separate", unimix=0.01, continue_target_scale=0.997,
    reco_symlog=not s["images"], num_reward_bins=s["bins"], detach_output=False)
model_loss.set_keys(pixels="seen")
actor_loss = DreamerV3ActorLoss(
    actor, critic, env, continuation_model=continuing, imagination_horizon=s["horizon"],
    use_reinforce=True)
actor_loss.make_value_estimator(ValueEstimators.TDLambda, gamma=1.0, lmbda=0.95)
value_loss = DreamerV3ValueLoss(
    critic, value_loss="two_hot", num_value_bins=s["bins"], actor_loss=actor_loss,
    slow_critic_regularization=1.0)
target = SoftUpdate(value_loss, tau=0.02)
losses = DreamerV3Loss(model_loss, actor_loss, value_loss)
optimizer = DreamerV3Optimizer(
    [parameter for parameter in losses.parameters() if parameter.requires_grad])
steps = (s["batch"], s["length"])
none = torch.zeros(*steps, 1, dtype=torch.bool)

def train(updates):
    for _ in range(updates):
        seen = torch.randint(256, (*steps, *shape)).to(torch.uint8)
        chosen = torch.nn.functional.one_hot(torch.randint(2, steps), 2).float()
        batch = TensorDict({
            "state": torch.zeros(*steps, latent), "belief": torch.zeros(*steps, s["deter"]),
            "action": chosen, "is_init": none, "next": {
                "seen": seen if s["images"] else torch.randn(*steps, *shape),
                "reward": torch.ones(*steps, 1), "done": none, "terminated": none}}, steps)
        found = losses(batch)
        sum(found[key] for key in found.keys() if key.startswith("loss_")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    return updates
"""
