//! The default actor-critic: one network for the policy, one for the value.

use super::linalg::row_stride;
use super::memory::Lstm;
use super::network::Network;
use rlox_kernels::error::{KernelError, Result, check_len, check_size};

/// The policy's distribution and its actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// One of several actions, by logits.
    Categorical(usize),
    /// A vector of several components, by a Gaussian with a mean that depends on the observation
    /// and a logarithmic deviation that does not.
    Gaussian(usize),
    /// A vector of several components, by a Gaussian whose means and logarithmic deviations both
    /// depend on the observation; the deviations are tanh of an output. It learns, but does not act.
    ScaledGaussian(usize),
}

impl Head {
    /// Number of actions, or of components of an action.
    #[must_use]
    pub fn width(self) -> usize {
        let (Self::Categorical(width) | Self::Gaussian(width) | Self::ScaledGaussian(width)) = self;
        width
    }

    /// Number of outputs of the policy network.
    pub(super) fn n_outputs(self) -> usize {
        if let Self::ScaledGaussian(width) = self { 2 * width } else { self.width() }
    }

    /// Number of logarithmic deviations among the parameters.
    pub(super) fn n_deviations(self) -> usize {
        if let Self::Gaussian(width) = self { width } else { 0 }
    }

    /// Number of flags of an action mask.
    pub(super) fn n_masked(self) -> usize {
        if let Self::Categorical(width) = self { width } else { 0 }
    }
}

/// The largest size of a layer: far above any use, far below exhausting memory.
const MAX_WIDTH: usize = 1 << 14;

/// The shape of an actor-critic and the order of its parameters in one flat array.
///
/// A Gaussian policy's log standard deviations come first; then the memories of the policy and of
/// the value, if any; then the policy network and the value network, each layer by layer, weights
/// `outputs` × `inputs` before biases. The torch modules of `rlox.networks` have the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorCritic {
    pub(super) obs_dim: usize,
    pub(super) head: Head,
    /// For a categorical policy: number of actions of each choice; their outputs lie next to each
    /// other.
    pub(super) choices: Vec<usize>,
    /// LSTM layers in front of the two networks.
    pub(super) memories: Option<[Lstm; 2]>,
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

    /// The same networks with separate inputs: an observation is the policy's input followed by the
    /// value network's.
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

    /// The same networks with `ReLU` for tanh.
    #[must_use]
    pub fn rectified(self) -> Self {
        Self { actor: self.actor.rectified(), critic: self.critic.rectified(), ..self }
    }

    /// Two networks with tanh, each behind an LSTM layer of `units` units.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size outside `[1, 16384]`.
    pub fn recurrent(
        obs_dim: usize,
        units: usize,
        hidden: [&[usize]; 2],
        head: Head,
    ) -> Result<Self> {
        check_width("obs_dim", obs_dim)?;
        check_width("memory_size", units)?;
        let first = Lstm::new(obs_dim, units, head.n_deviations());
        let second = Lstm::new(obs_dim, units, first.end());
        let network = |sizes: &[usize], at| Network::new(sizes, at).within(0, row_stride(units));
        let shape = Self::of([units; 2], hidden, head, second.end(), network)?;
        Ok(Self { obs_dim, memories: Some([first, second]), ..shape })
    }

    /// The same networks with a categorical policy of several choices at once, independent given
    /// the observation, each with its number of actions.
    ///
    /// # Errors
    /// [`KernelError`] for a size outside `[1, 16384]`, or if the head's width is not their sum.
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

    /// Components of an observation: of both networks' inputs if those are separate.
    #[must_use]
    pub fn obs_dim(&self) -> usize {
        self.obs_dim
    }

    /// Size of the state remembered of an episode: 0 without a memory.
    #[must_use]
    pub fn state_size(&self) -> usize {
        self.memories.map_or(0, |memories| memories.map(Lstm::state_size).iter().sum())
    }

    /// Size of the input of actions and values: an observation, or with a memory the state after
    /// it.
    #[must_use]
    pub fn seen_dim(&self) -> usize {
        if self.memories.is_some() { self.state_size() } else { self.obs_dim }
    }

    /// Number of actions of each choice of a categorical policy.
    #[must_use]
    pub fn choices(&self) -> &[usize] {
        &self.choices
    }

    /// The policy's distribution.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Number of parameters.
    #[must_use]
    pub fn n_parameters(&self) -> usize {
        self.critic.end()
    }
}

pub(super) fn check_width(name: &'static str, width: usize) -> Result<()> {
    check_size(name, width, MAX_WIDTH)
}

/// The actions of a batch, as in [`rlox_kernels::env::Actions`], in the learner's precision.
#[derive(Debug, Clone, Copy)]
pub enum ActionRows<'a, F> {
    /// One integer per row and choice.
    Discrete(&'a [i64]),
    /// The head's number of components per row.
    Continuous(&'a [F]),
}

impl<F: num_traits::Float> ActionRows<'_, F> {
    /// Checks that each of `rows` rows has an action of the policy.
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

    /// Checks that the discrete actions exist and that masks, per row a flag for each action of
    /// each choice, allow them.
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
