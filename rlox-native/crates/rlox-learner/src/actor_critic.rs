//! The default actor-critic: one network for the policy, one for the value.

use super::linalg::{Layer, row_stride};
use super::memory::{Layers, Lstm};
use super::network::Network;
use rlox_kernels::error::{KernelError, Result, check_len, check_size};

/// The actions that a policy draws from a distribution, and the distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// One of so many actions, by logits.
    Categorical(usize),
    /// A vector of so many components, by a Gaussian with a mean that depends on the observation
    /// and a logarithmic deviation that does not.
    Gaussian(usize),
    /// A vector of so many components, by a Gaussian whose means and logarithmic deviations both
    /// depend on the observation; the latter are tanh of an output.
    ScaledGaussian(usize),
}

impl Head {
    /// How many actions there are to choose from, or components of one.
    #[must_use]
    pub fn width(self) -> usize {
        let (Self::Categorical(width) | Self::Gaussian(width) | Self::ScaledGaussian(width)) = self;
        width
    }

    /// How many outputs the policy network has.
    pub(super) fn n_outputs(self) -> usize {
        if let Self::ScaledGaussian(width) = self { 2 * width } else { self.width() }
    }

    /// How many logarithmic deviations are parameters.
    pub(super) fn n_deviations(self) -> usize {
        if let Self::Gaussian(width) = self { width } else { 0 }
    }

    /// How many flags an action mask has.
    pub(super) fn n_masked(self) -> usize {
        if let Self::Categorical(width) = self { width } else { 0 }
    }
}

/// The largest size of a layer: far above any use, far below what exhausts memory.
const MAX_WIDTH: usize = 1 << 14;

/// The shape of an actor-critic and the order of its parameters in one flat array.
///
/// A Gaussian policy's log standard deviations come first; then the memories of the policy and of the
/// value, or that of both, if there are any; then the policy network and the value network, each
/// layer by layer, weights `outputs` × `inputs` before biases. That is the order of `rlox.networks`'
/// torch modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorCritic {
    pub(super) obs_dim: usize,
    pub(super) head: Head,
    /// Of a categorical policy: how many actions each of its choices is of, beside each other in its
    /// outputs.
    pub(super) choices: Vec<usize>,
    /// LSTM layers in front of the two networks.
    pub(super) memories: Option<Layers<Lstm>>,
    pub(super) actor: Network,
    pub(super) critic: Network,
}

impl ActorCritic {
    /// Two networks with hidden layers of these sizes, each its own, and tanh between them.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size outside `[1, 16384]`.
    pub fn new(obs_dim: usize, hidden: [&[usize]; 2], head: Head) -> Result<Self> {
        Self::of([obs_dim; 2], hidden, head, head.n_deviations(), Network::new)
    }

    /// The same networks with inputs of their own: an observation is what the policy sees, and
    /// behind it what the value network sees.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size outside `[1, 16384]`.
    pub fn apart(seen: [usize; 2], hidden: [&[usize]; 2], head: Head) -> Result<Self> {
        let mut shape = Self::of(seen, hidden, head, head.n_deviations(), Network::new)?;
        shape.obs_dim = seen[0] + seen[1];
        shape.actor = shape.actor.within(0, shape.obs_dim);
        shape.critic = shape.critic.within(seen[0], shape.obs_dim);
        Ok(shape)
    }

    /// Two networks with hidden layers of these sizes and `ReLU` between them.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size outside `[1, 16384]`.
    pub fn relu(obs_dim: usize, hidden: [&[usize]; 2], head: Head) -> Result<Self> {
        let network = |sizes: &[usize], at| Network::relu(Layer::linear(sizes, at));
        Self::of([obs_dim; 2], hidden, head, head.n_deviations(), network)
    }

    /// Two networks with tanh, behind an LSTM layer of so many units each or one that they share.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size outside `[1, 16384]`.
    pub fn recurrent(
        obs_dim: usize,
        units: usize,
        shared: bool,
        hidden: [&[usize]; 2],
        head: Head,
    ) -> Result<Self> {
        check_width("obs_dim", obs_dim)?;
        check_width("memory_size", units)?;
        let first = Lstm::new(obs_dim, units, head.n_deviations());
        let second = Lstm::new(obs_dim, units, first.end());
        let memories = if shared { Layers::Shared(first) } else { Layers::Own([first, second]) };
        let end = if shared { first.end() } else { second.end() };
        let network = |sizes: &[usize], at| Network::new(sizes, at).within(0, row_stride(units));
        let shape = Self::of([units; 2], hidden, head, end, network)?;
        Ok(Self { obs_dim, memories: Some(memories), ..shape })
    }

    /// The same networks with a categorical policy of several choices at once, each of so many
    /// actions: independent ones, given the observation.
    ///
    /// # Errors
    /// [`KernelError`] for a size outside `[1, 16384]`, or if the head is not of all of them together.
    pub fn with_choices(self, choices: &[usize]) -> Result<Self> {
        for &size in choices {
            check_width("choices", size)?;
        }
        check_len("choices", choices.iter().sum(), "the head's actions", self.head.n_masked())?;
        Ok(Self { choices: choices.to_vec(), ..self })
    }

    fn of(
        seen: [usize; 2],
        hidden: [&[usize]; 2],
        head: Head,
        offset: usize,
        network: impl Fn(&[usize], usize) -> Network,
    ) -> Result<Self> {
        check_width("obs_dim", seen[0])?;
        check_width("critic_dim", seen[1])?;
        check_width("actions", head.width())?;
        for width in hidden.concat() {
            check_width("hidden", width)?;
        }
        let sizes = |k: usize, outputs| [&[seen[k]], hidden[k], &[outputs]].concat();
        let actor = network(&sizes(0, head.n_outputs()), offset);
        let critic = network(&sizes(1, 1), actor.end());
        let choices = if let Head::Categorical(n) = head { vec![n] } else { Vec::new() };
        Ok(Self { obs_dim: seen[0], head, choices, memories: None, actor, critic })
    }

    /// Components of an observation: of both networks' inputs if they have inputs of their own.
    #[must_use]
    pub fn obs_dim(&self) -> usize {
        self.obs_dim
    }

    /// Numbers that are remembered of an episode: 0 without a memory.
    #[must_use]
    pub fn state_size(&self) -> usize {
        let layers = self.memories.as_ref().map_or(&[][..], Layers::as_slice);
        layers.iter().map(|layer| layer.state_size()).sum()
    }

    /// Numbers from which actions are drawn and values estimated: an observation, or with a memory
    /// the state after it.
    #[must_use]
    pub fn seen_dim(&self) -> usize {
        if self.memories.is_some() { self.state_size() } else { self.obs_dim }
    }

    /// How many actions each choice of a categorical policy is of.
    #[must_use]
    pub fn choices(&self) -> &[usize] {
        &self.choices
    }

    /// What the policy draws its actions from.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// How many parameters there are.
    #[must_use]
    pub fn n_parameters(&self) -> usize {
        self.critic.end()
    }
}

pub(super) fn check_width(name: &'static str, width: usize) -> Result<()> {
    check_size(name, width, MAX_WIDTH)
}

/// The actions of a batch, as [`rlox_kernels::env::Actions`] has them, in the learner's arithmetic.
#[derive(Debug, Clone, Copy)]
pub enum ActionRows<'a, F> {
    /// One integer per row and choice.
    Discrete(&'a [i64]),
    /// So many components per row as the head has.
    Continuous(&'a [F]),
}

impl<F: num_traits::Float> ActionRows<'_, F> {
    /// Checks that there is an action of the policy for each of `rows` rows.
    pub(super) fn check(&self, shape: &ActorCritic, rows: usize) -> Result<()> {
        match (self, shape.head) {
            (Self::Discrete(actions), Head::Categorical(_)) => {
                let choices = &shape.choices;
                check_len("actions", actions.len(), "log_probs * choices", rows * choices.len())?;
                for (i, (&value, &n)) in actions.iter().zip(choices.iter().cycle()).enumerate() {
                    let n_actions = i64::try_from(n).unwrap_or(i64::MAX);
                    if !(0..n_actions).contains(&value) {
                        return Err(KernelError::Action { index: Some(i), n_actions, value });
                    }
                }
                Ok(())
            }
            (Self::Continuous(actions), Head::Gaussian(n) | Head::ScaledGaussian(n)) => {
                check_len("actions", actions.len(), "log_probs * act_dim", rows * n)
            }
            (Self::Discrete(_), _) => Err(wrong_kind("continuous", "discrete")),
            (Self::Continuous(_), Head::Categorical(_)) => {
                Err(wrong_kind("discrete", "continuous"))
            }
        }
    }

    /// Checks that masks, a flag of each action of each choice a row, allow the discrete actions, all
    /// of which exist.
    pub(super) fn check_allowed(&self, masks: &[u8], choices: &[usize]) -> Result<()> {
        let Self::Discrete(actions) = self else { return Ok(()) };
        let masks = masks.chunks_exact(choices.iter().sum());
        for (row, (actions, mask)) in actions.chunks_exact(choices.len()).zip(masks).enumerate() {
            for (&action, mask) in actions.iter().zip(parts(mask, choices)) {
                if mask[index(action)] == 0 {
                    return Err(KernelError::Forbidden { row, action });
                }
            }
        }
        Ok(())
    }
}

/// The parts of a row that belong to each choice.
pub(super) fn parts<'a, T>(
    mut row: &'a [T],
    choices: &'a [usize],
) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
    choices.iter().map(move |&n| {
        let (part, rest) = row.split_at(n);
        row = rest;
        part
    })
}

/// The parts of a row that belong to each choice, to write to.
pub(super) fn parts_mut<'a, T>(
    mut row: &'a mut [T],
    choices: &'a [usize],
) -> impl Iterator<Item = &'a mut [T]> + use<'a, T> {
    choices.iter().map(move |&n| {
        let (part, rest) = std::mem::take(&mut row).split_at_mut(n);
        row = rest;
        part
    })
}

/// A row's number, which has been checked to lie within the batch.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
pub(super) fn index(row: i64) -> usize {
    row as usize
}

fn wrong_kind(expected: &'static str, got: &'static str) -> KernelError {
    KernelError::ActionKind { env_id: "the policy".to_owned(), expected, got }
}
