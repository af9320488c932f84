//! Stacked frames as observations, each frame stored once.
//!
//! A frame is shared if it reappears: in the env's previous observation, one place further on, or
//! twice in one stack, as at an episode's start. Observations need not be stacks: frames that do
//! not reappear are stored again.

use super::Ring;
use crate::error::{KernelError, Result};
use crate::replay::layout::{Layout, NUMBER};
use crate::replay::pages::Pages;

/// Marks the frames of an unknown observation.
const NOTHING: u32 = u32::MAX;

/// Frames and bytes per allocation, whichever is less; at least one frame.
const CHUNK: (u32, usize) = (1024, 1 << 22);

/// Frames by number, each kept while an observation uses it.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of a frame.
    size: usize,
    /// Frames of an observation.
    per_obs: usize,
    /// Frames of a chunk.
    per_chunk: u32,
    chunks: Vec<Pages<u8>>,
    /// By number, the count of a frame's places in stored observations.
    uses: Vec<u32>,
    /// The numbers of unused frames.
    free: Vec<u32>,
    /// Numbers of the transition being stored: the observation's, then the next observation's.
    numbers: Vec<u32>,
}

impl Frames {
    pub(super) fn new(layout: &Layout) -> Option<Self> {
        let per_obs = layout.frames;
        let size = layout.obs.size().checked_div(per_obs)?;
        Some(Self {
            size,
            per_obs,
            per_chunk: u32::try_from(CHUNK.1 / size).map_or(1, |frames| frames.clamp(1, CHUNK.0)),
            chunks: Vec::new(),
            uses: Vec::new(),
            free: Vec::new(),
            numbers: vec![NOTHING; 2 * per_obs],
        })
    }

    /// Makes room for the frames of `n` transitions. Memory is taken on first write.
    pub(super) fn reserve(&mut self, n: usize) -> Result<()> {
        let needed = n.saturating_mul(2 * self.per_obs);
        let out_of_memory = KernelError::OutOfMemory { name: "frames", requested: needed };
        while self.free.len() < needed {
            let end =
                u32::try_from(self.uses.len()).ok().and_then(|n| n.checked_add(self.per_chunk));
            let Some(end) = end else { return Err(out_of_memory) };
            let frames = self.per_chunk as usize;
            self.chunks.push(Pages::new(frames * self.size, "frames", needed)?);
            self.uses.resize(end as usize, 0);
            self.free.extend((end - self.per_chunk..end).rev());
        }
        Ok(())
    }

    /// A frame's chunk and its offset there.
    fn place(&self, number: u32) -> (usize, usize) {
        let (chunk, nth) = (number / self.per_chunk, number % self.per_chunk);
        (chunk as usize, nth as usize * self.size)
    }

    fn frame(&self, number: u32) -> &[u8] {
        let (chunk, begin) = self.place(number);
        &self.chunks[chunk][begin..][..self.size]
    }

    /// Finds or stores the frames of a transition. `before` holds the frame numbers of the next
    /// observation of the env's previous transition, if any.
    fn take(&mut self, obs: &[u8], next_obs: Option<&[u8]>, before: Option<&[u8]>) {
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.fill(NOTHING);
        let (first, second) = numbers.split_at_mut(self.per_obs);
        for (k, frame) in obs.chunks_exact(self.size).enumerate() {
            let same = before.map_or(NOTHING, |before| number(before, k));
            first[k] =
                self.find_or_store(frame, [same, if k > 0 { first[k - 1] } else { NOTHING }]);
        }
        let size = self.size;
        for (k, frame) in next_obs.unwrap_or_default().chunks_exact(size).enumerate() {
            let shifted = first.get(k + 1).copied().unwrap_or(first[k]);
            let last = if k > 0 { second[k - 1] } else { first[0] };
            second[k] = self.find_or_store(frame, [shifted, last]);
        }
        self.numbers = numbers;
    }

    /// The number of a frame: that of an equal candidate, or a new one.
    fn find_or_store(&mut self, frame: &[u8], candidates: [u32; 2]) -> u32 {
        let is_same = |number: &u32| *number != NOTHING && self.frame(*number) == frame;
        let found = candidates.into_iter().find(is_same);
        // Room has been reserved.
        let Some(number) = found.or_else(|| self.free.pop()) else { return NOTHING };
        self.uses[number as usize] += 1;
        if found.is_none() {
            let (chunk, begin) = self.place(number);
            self.chunks[chunk][begin..][..self.size].copy_from_slice(frame);
        }
        number
    }

    /// Releases the frames of an overwritten record.
    fn release(&mut self, numbers: &[u8]) {
        for k in 0..2 * self.per_obs {
            let number = number(numbers, k);
            if number == NOTHING {
                continue;
            }
            let uses = &mut self.uses[number as usize];
            *uses -= 1;
            if *uses == 0 {
                self.free.push(number);
            }
        }
    }

    /// Forgets all frames.
    fn clear(&mut self) {
        self.uses.fill(0);
        self.free.clear();
        // All frame numbers fit 32 bits.
        let end = u32::try_from(self.uses.len()).unwrap_or(NOTHING);
        self.free.extend((0..end).rev());
    }

    /// Writes the observation with these frame numbers; zeros for an unknown one.
    pub(super) fn copy(&self, to: &mut [u8], numbers: &[u8]) {
        for (k, to) in to.chunks_exact_mut(self.size).enumerate() {
            match number(numbers, k) {
                NOTHING => to.fill(0),
                number => to.copy_from_slice(self.frame(number)),
            }
        }
    }

    /// Number of stored frames.
    fn len(&self) -> usize {
        self.uses.len() - self.free.len()
    }
}

/// The k-th frame number in a record's bytes.
fn number(bytes: &[u8], k: usize) -> u32 {
    bytes[k * NUMBER..].first_chunk().map_or(NOTHING, |bytes| u32::from_ne_bytes(*bytes))
}

impl Ring {
    /// Number of stored frames if frames are shared, otherwise 0.
    #[must_use]
    pub fn n_frames(&self) -> usize {
        self.frames.as_ref().map_or(0, Frames::len)
    }

    /// Finds or stores the frames of the next transition, and releases those of the transition that
    /// it replaces.
    pub(super) fn take_frames(&mut self, obs: &[u8], next_obs: Option<&[u8]>) {
        let Some(mut frames) = self.frames.take() else { return };
        let (capacity, n_envs) = (self.layout.capacity, self.layout.n_step.n_envs);
        let before = (self.len >= n_envs).then(|| self.after(self.position, capacity - n_envs));
        let obs_part = self.parts.obs;
        frames.take(obs, next_obs, before.map(|slot| &self.record(slot)[obs_part..2 * obs_part]));
        if self.len == capacity {
            frames.release(&self.record(self.position)[..2 * obs_part]);
        }
        self.frames = Some(frames);
    }

    /// Writes the numbers found by `take_frames` into the record in `slot`.
    pub(super) fn write_numbers(&mut self, slot: usize) {
        let Some(frames) = self.frames.take() else { return };
        let places = self.record_mut(slot).chunks_exact_mut(NUMBER);
        for (place, number) in places.zip(&frames.numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        self.frames = Some(frames);
    }

    /// Makes room for the frames of `n` transitions.
    pub(in crate::replay) fn reserve_frames(&mut self, n: usize) -> Result<()> {
        self.frames.as_mut().map_or(Ok(()), |frames| frames.reserve(n))
    }

    /// Forgets all frames, before the ring is filled again.
    pub(super) fn clear_frames(&mut self) {
        if let Some(frames) = &mut self.frames {
            frames.clear();
        }
    }
}
