//! Sizes and types of a buffer, and places of a transition's parts.

use super::values::{DType, Values};
use crate::error::{KernelError, Result, check_len, check_range, check_size};

/// A cache line: records up to this size never straddle two, and the first starts on one.
pub(super) const LINE: usize = 64;

/// Bytes after the action: the reward, and one byte of flags.
pub(super) const TAIL: usize = 5;

pub(super) const TERMINATED: u8 = 1;
pub(super) const TRUNCATED: u8 = 2;
/// Flag of a record without a next observation; its place holds zeros.
pub(super) const NO_NEXT_OBS: u8 = 4;

/// Bytes of a frame's number, stored in the record instead of the frame.
pub(super) const NUMBER: usize = size_of::<u32>();

/// One field of a transition: a number of elements of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The type of an element.
    pub dtype: DType,
    /// Elements per transition, at least 1.
    pub len: usize,
}

impl Field {
    pub(super) const fn size(self) -> usize {
        self.dtype.size() * self.len
    }

    /// Checks that `values` holds `rows` rows of this field.
    pub(super) fn check(
        self,
        name: &'static str,
        values: Values<'_>,
        like: &'static str,
        rows: usize,
    ) -> Result<()> {
        if values.dtype() != self.dtype {
            let (expected, got) = (self.dtype.name(), values.dtype().name());
            return Err(KernelError::DType { name, expected, got });
        }
        check_len(name, values.len(), like, rows.saturating_mul(self.len))
    }
}

/// Order of the envs' steps in a buffer, and number of steps per sampled transition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NStep {
    /// Number of envs stored in turn: an env's next step lies `n_envs` slots further.
    pub n_envs: usize,
    /// Steps that a transition spans if its episode is long enough, at least 1.
    pub n_step: usize,
    /// The discount factor γ of a step, in [0, 1].
    pub gamma: f64,
}

impl NStep {
    /// Transitions of one step.
    pub const ONE: Self = Self { n_envs: 1, n_step: 1, gamma: 1.0 };

    fn check(&self, capacity: usize) -> Result<()> {
        check_range("gamma", self.gamma, 0.0, 1.0)?;
        check_size("n_envs", self.n_envs, capacity)?;
        check_size("n_step", self.n_step, usize::MAX)
    }
}

/// Sizes and types of a buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Number of transitions, at least 1.
    pub capacity: usize,
    /// The observation and the next observation.
    pub obs: Field,
    /// The action.
    pub action: Field,
    /// Steps of a sampled transition.
    pub n_step: NStep,
    /// Frames per stacked observation, each stored once even if several observations share it; 0 to
    /// store whole observations.
    pub frames: usize,
}

impl Layout {
    /// The same layout with whole observations instead of shared frames.
    pub(super) const fn whole(self) -> Self {
        Self { frames: 0, ..self }
    }

    /// Bytes of memory of a full buffer of this layout; with shared frames, for one new frame per
    /// transition.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, [`KernelError::OutOfMemory`] if no address space
    /// could hold it.
    pub fn memory_bytes(&self) -> Result<usize> {
        let too_much = KernelError::OutOfMemory { name: "capacity", requested: self.capacity };
        let parts = Parts::new(self)?;
        let frame = self.obs.size().checked_div(self.frames).unwrap_or(0);
        let bytes = parts.stride.checked_add(frame).and_then(|n| n.checked_mul(self.capacity));
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(too_much)
    }
}

/// Places of a transition's parts in its record: observation, next observation, action, reward (4
/// bytes), flags (1 byte), padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// Bytes of an observation, or of the numbers of its frames.
    pub(super) obs: usize,
    /// Bytes of an observation outside the record.
    pub(super) obs_row: usize,
    pub(super) action: usize,
    /// Bytes from one record to the next.
    pub(super) stride: usize,
}

impl Parts {
    pub(super) fn new(layout: &Layout) -> Result<Self> {
        check_size("capacity", layout.capacity, usize::MAX)?;
        check_size("obs_dim", layout.obs.len, usize::MAX)?;
        check_size("act_dim", layout.action.len, usize::MAX)?;
        layout.n_step.check(layout.capacity)?;
        if layout.frames > 0 {
            let whole = layout.obs.len - layout.obs.len % layout.frames;
            check_len("obs_dim", layout.obs.len, "whole frames", whole)?;
        }
        let bytes = |field: Field| field.dtype.size().checked_mul(field.len);
        let obs_part = || match layout.frames {
            0 => bytes(layout.obs),
            frames => frames.checked_mul(NUMBER),
        };
        let stride = || {
            bytes(layout.obs)?.checked_mul(2)?;
            let obs = obs_part()?.checked_mul(2)?;
            let record = obs.checked_add(bytes(layout.action)?)?.checked_add(TAIL)?;
            // One cache miss for a small record, and little padding for others.
            if record <= LINE {
                Some(record.next_power_of_two())
            } else {
                record.checked_next_multiple_of(LINE / 2)
            }
        };
        let out_of_memory = |name, requested| KernelError::OutOfMemory { name, requested };
        let stride = stride().ok_or(out_of_memory("obs_dim", layout.obs.len))?;
        let obs_row = layout.obs.size();
        let obs = if layout.frames == 0 { obs_row } else { layout.frames * NUMBER };
        Ok(Self { obs, obs_row, action: layout.action.size(), stride })
    }

    /// Whether a record has its next observation.
    pub(super) fn has_next_obs(self, record: &[u8]) -> bool {
        record[self.payload() - 1] & NO_NEXT_OBS == 0
    }

    /// Bytes of a record without its padding.
    pub(super) const fn payload(self) -> usize {
        2 * self.obs + self.action + TAIL
    }
}
