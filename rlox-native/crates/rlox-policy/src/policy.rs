//! Acting with one policy.

use std::path::Path;
use std::sync::Arc;

use crate::array::{Array, Leaves};
use crate::error::{Error, Result, argument, damaged};
use crate::file;
use crate::layers::{Input, Layer};
use crate::preprocessing::Preprocessor;
use crate::space::Space;
use crate::step::Step;
use crate::tree::Node;

/// Numbers that every file may ask for; an honest one holds weights for more.
const ALWAYS_MADE: usize = 1 << 20;
/// Numbers that a layer may make of one observation, in any file.
const ALWAYS_COMPUTED: usize = 1 << 24;

/// A trained policy: from observations to the most probable actions.
#[derive(Clone)]
pub struct Policy {
    data: Arc<PolicyData>,
    /// Number among the agents that share it; `None` of a policy of one agent.
    agent: Option<f64>,
}

/// What a file says of a policy.
pub(crate) struct PolicyData {
    algorithm: String,
    observations: Space,
    actions: Space,
    network: Layer,
    preprocessor: Option<Preprocessor>,
    takes_masks: bool,
    largest: usize,
}

/// What a policy remembers of B episodes: hidden states and frames. [`Memory::default`] begins all.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    frames: Option<Leaves>,
    hidden: Option<Array>,
}

/// What may go with B observations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// (B,) with which observations an episode begins; `None`: with none, but all do with a new
    /// [`Memory`].
    pub episode_start: Option<&'a [bool]>,
    /// (B, mask size) side by side, true where a choice is possible; `None` forbids nothing.
    pub action_masks: Option<&'a [bool]>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Policy of '{}'", self.data.algorithm)
    }
}

impl Policy {
    /// Read a file that `rlox export` wrote.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Damaged`], [`Error::TooNew`], or [`Error::OtherKind`] if the
    /// file is of a team.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_bytes(&file::bytes(path.as_ref())?)
    }

    /// Read the bytes of such a file.
    ///
    /// # Errors
    /// See [`Policy::open`].
    pub fn from_bytes(content: &[u8]) -> Result<Self> {
        let content = file::read(content)?;
        let root = content.root();
        if root.find("team").is_some() {
            return Err(Error::OtherKind("the file is of a team; open it as a Team"));
        }
        let data = PolicyData::read(&root.get("policy")?, content.numbers())?;
        Self::new(Arc::new(data), None)
    }

    /// A policy that has acted once, so that what does not fit is refused here.
    pub(crate) fn new(data: Arc<PolicyData>, agent: Option<f64>) -> Result<Self> {
        let policy = Self { data, agent };
        let blank = policy.data.observations.blank();
        match policy.predict(&blank, &mut Memory::default(), Given::default()) {
            Err(Error::Argument(why)) => damaged(why),
            Err(other) => Err(other),
            Ok(_) => Ok(policy),
        }
    }

    /// Registered name of what trained it.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        &self.data.algorithm
    }

    /// Space of one observation.
    #[must_use]
    pub fn observation_space(&self) -> &Space {
        &self.data.observations
    }

    /// Space of one action.
    #[must_use]
    pub fn action_space(&self) -> &Space {
        &self.data.actions
    }

    /// Return the most probable actions for B observations, in the env's units.
    ///
    /// # Errors
    /// [`Error::Argument`]: an argument has another shape, or the policy heeds no masks.
    /// [`Error::Damaged`]: layers do not fit these observations.
    pub fn predict(&self, obs: &Leaves, memory: &mut Memory, given: Given<'_>) -> Result<Leaves> {
        let data = &*self.data;
        let (obs, size) = data.observations.checked(obs)?;
        if let Some(masks) = given.action_masks {
            data.check_masks(masks, size)?;
        }
        let starts = given.episode_start.map_or_else(|| vec![false; size], <[bool]>::to_vec);
        if starts.len() != size {
            return argument(format!("episode_start has {} bools, expected {size}", starts.len()));
        }
        let state_size = data.network.memory_size();
        let mut hidden = match memory.hidden.clone() {
            Some(hidden) => hidden,
            None => Array::zeros(vec![size, state_size]),
        };
        if hidden.shape() != [size, state_size] {
            return argument(format!(
                "the memory has shape {:?}, expected {:?}; begin with a new Memory",
                hidden.shape(),
                [size, state_size]
            ));
        }
        for (i, _) in starts.iter().enumerate().filter(|(_, start)| **start) {
            hidden.row_mut(i).fill(0.0);
        }
        let mut seen = obs;
        let mut frames = None;
        if let Some(preprocessor) = &data.preprocessor {
            seen = preprocessor.see(seen, memory.frames.as_ref(), &starts)?;
            frames = preprocessor.has_frames().then(|| seen.clone());
        }
        let (actions, after) = self.compute(seen, &hidden, given.action_masks, size)?;
        memory.frames = frames;
        memory.hidden = (state_size > 0).then_some(after);
        Ok(actions)
    }

    fn compute(
        &self,
        seen: Leaves,
        hidden: &Array,
        masks: Option<&[bool]>,
        size: usize,
    ) -> Result<(Leaves, Array)> {
        let mut step = Step::new(hidden, masks, self.data.largest.max(ALWAYS_COMPUTED));
        let rows = self.data.network.compute(Input::of(seen, self.agent), &mut step)?;
        let after = step.after()?;
        if rows.rows() != size || after.shape() != hidden.shape() {
            return damaged("its network returns other shapes than the actions have");
        }
        Ok((self.data.actions.to_env(&rows)?, after))
    }
}

impl PolicyData {
    pub(crate) fn read(node: &Node<'_>, in_arrays: usize) -> Result<Self> {
        let observations = Space::read(&node.get("observation_space")?)?;
        let actions = Space::read(&node.get("action_space")?)?;
        let network = Layer::read(&node.get("network")?)?;
        let options = node.get("preprocessing")?;
        let frames = if options.is_null() { 1 } else { options.get("frame_stack")?.size()? };
        let largest = in_arrays.max(ALWAYS_MADE);
        let seen = observations.numbers()?.max(1).checked_mul(frames);
        let network_asks = network.asks_for().max(network.memory_size());
        let asked = [seen, Some(actions.numbers()?), Some(network_asks)];
        if asked.iter().any(|n| n.is_none_or(|n| n > largest)) {
            return damaged("it asks for arrays that are larger than the file");
        }
        let preprocessor = if options.is_null() {
            None
        } else {
            Some(Preprocessor::read(&options, &observations)?)
        };
        Ok(Self {
            algorithm: node.get("algorithm")?.text()?.to_owned(),
            takes_masks: node.get("takes_masks")?.flag()?,
            observations,
            actions,
            network,
            preprocessor,
            largest,
        })
    }

    fn check_masks(&self, masks: &[bool], size: usize) -> Result<()> {
        let mask_size = self.actions.mask_size();
        if !self.takes_masks || mask_size == 0 {
            return argument(format!(
                "'{}' takes no action masks here; leave them out",
                self.algorithm
            ));
        }
        if Some(masks.len()) != mask_size.checked_mul(size) {
            return argument(format!(
                "action_masks has {} bools, expected {size} times {mask_size}",
                masks.len()
            ));
        }
        let leaves = self.actions.leaves();
        for (row, mask) in masks.chunks(mask_size).enumerate() {
            let mut rest = mask;
            let choices = leaves.iter().flat_map(|(_, leaf)| leaf.choices());
            for (column, choices) in choices.enumerate() {
                let (own, others) = rest.split_at(choices.min(rest.len()));
                if !own.contains(&true) {
                    return argument(format!(
                        "the action mask in row {row} forbids every choice of column {column}; one \
                         must be possible"
                    ));
                }
                rest = others;
            }
        }
        Ok(())
    }
}
