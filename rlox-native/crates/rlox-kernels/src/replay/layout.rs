//! Sizes and types of a buffer, and where the parts of a transition lie.

use super::values::{DType, Values};
use crate::error::{KernelError, Result, check_len, check_range, check_size};

/// A cache line: records up to this size never straddle two, and the first begins at one.
pub(super) const LINE: usize = 64;

/// Bytes after the action: the reward, and one byte of flags.
pub(super) const TAIL: usize = 5;

pub(super) const TERMINATED: u8 = 1;
pub(super) const TRUNCATED: u8 = 2;
/// The next observation was not given; its place holds zeros.
pub(super) const NO_NEXT_OBS: u8 = 4;

/// Bytes of the number of a frame, which stands for it in a record.
pub(super) const NUMBER: usize = size_of::<u32>();

/// One field of a transition: so many elements of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The type of an element.
    pub dtype: DType,
    /// How many elements each transition has, at least 1.
    pub len: usize,
}

impl Field {
    pub(super) const fn size(self) -> usize {
        self.dtype.size() * self.len
    }

    /// Checks that `values` are `rows` rows of this field.
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

/// How the steps of an env follow each other in a buffer, and how many a drawn transition spans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NStep {
    /// How many envs are stored in turn: the step after one of an env lies as many slots further.
    pub n_envs: usize,
    /// How many steps a transition spans where its episode is long enough, at least 1.
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

/// What a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// How many transitions, at least 1.
    pub capacity: usize,
    /// The observation, and the next observation.
    pub obs: Field,
    /// The action.
    pub action: Field,
    /// The steps that a drawn transition spans.
    pub n_step: NStep,
    /// How many frames an observation stacks; each is stored once however many
    /// observations it is in; 0 where observations are stored whole.
    pub frames: usize,
}

impl Layout {
    /// The same without frames that are stored once: for buffers that keep observations whole.
    pub(super) const fn whole(self) -> Self {
        Self { frames: 0, ..self }
    }

    /// Bytes of memory that a buffer of this layout takes when it is full; where frames are stored
    /// once, with one new frame per transition.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, [`KernelError::OutOfMemory`] where no address space
    /// could hold it.
    pub fn memory_bytes(&self) -> Result<usize> {
        let too_much = KernelError::OutOfMemory { name: "capacity", requested: self.capacity };
        let parts = Parts::new(self)?;
        let frame = self.obs.size().checked_div(self.frames).unwrap_or(0);
        let bytes = parts.stride.checked_add(frame).and_then(|n| n.checked_mul(self.capacity));
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(too_much)
    }
}

/// Where the parts of a transition lie in its record:
/// observation, next observation, action, reward (4 bytes), flags (1 byte), padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// Bytes of an observation, or of the numbers of its frames.
    pub(super) obs: usize,
    /// Bytes of an observation outside of the record.
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
            // One miss of the cache for a small record, and no half line more than needed for others.
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
