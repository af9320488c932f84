//! Copying records out of a ring.

use super::{Ring, TAIL, TERMINATED, TRUNCATED};
use crate::replay::batch::Batch;
use crate::replay::layout::{LINE, Parts};

/// How many records are fetched at once: enough to keep the memory busy, few enough to stay cached.
const TOGETHER: usize = 32;

/// Records from this size on are copied as they come.
const LONG: usize = 16 * LINE;

impl Ring {
    /// Reads a byte of every cache line of some records, one right after the other, so that their
    /// misses overlap; then copying them finds all in the cache. Long records are left to the
    /// processor, which sees them coming.
    fn touch(&self, slots: &[usize]) {
        if self.parts.stride > LONG {
            return;
        }
        let mut bytes = 0;
        for line in (0..self.parts.stride).step_by(LINE) {
            for slot in slots {
                bytes ^= self.bytes[slot * self.parts.stride + line];
            }
        }
        std::hint::black_box(bytes);
    }

    /// Copies what is drawn where transitions begin in `slots`: one step each, or spans.
    pub(in crate::replay) fn draw(&self, slots: &[usize], out: &mut Batch<'_>) {
        let slots = slots.chunks(TOGETHER).flat_map(|chunk| {
            self.touch(chunk);
            chunk.iter().copied()
        });
        if self.layout.n_step.n_step > 1 {
            self.gather_spans(slots, out);
        } else {
            self.gather(slots, out);
        }
    }

    /// Copies the transitions in `slots` into `out`, which has passed [`Ring::check_out`].
    pub(in crate::replay) fn gather(
        &self,
        slots: impl Iterator<Item = usize>,
        out: &mut Batch<'_>,
    ) {
        let records = slots.map(|slot| self.record(slot));
        match &self.frames {
            None => copy_records(self.parts, records, out, copy_row),
            Some(frames) => copy_records(self.parts, records, out, |to, obs| frames.copy(to, obs)),
        }
    }
}

/// Copies records into the rows of `out`, observations by `copy_obs`.
pub(in crate::replay) fn copy_records<'r>(
    parts: Parts,
    records: impl Iterator<Item = &'r [u8]>,
    out: &mut Batch<'_>,
    copy_obs: impl Fn(&mut [u8], &[u8]),
) {
    let mut next_obs =
        out.next_obs.as_mut().map(|values| values.bytes().chunks_exact_mut(parts.obs_row));
    let obs = out.obs.bytes().chunks_exact_mut(parts.obs_row);
    let actions = out.actions.bytes().chunks_exact_mut(parts.action);
    let ends = out.terminated.iter_mut().zip(out.truncated.iter_mut());
    for ((((record, to_obs), to_action), to_reward), (to_terminated, to_truncated)) in
        records.zip(obs).zip(actions).zip(out.rewards.iter_mut()).zip(ends)
    {
        let (obs, record) = record.split_at(parts.obs);
        let (next, record) = record.split_at(parts.obs);
        let (action, record) = record.split_at(parts.action);
        copy_obs(to_obs, obs);
        if let Some(to_next) = next_obs.as_mut().and_then(Iterator::next) {
            copy_obs(to_next, next);
        }
        copy_row(to_action, action);
        if let Some(&[a, b, c, d, flags]) = record.first_chunk::<TAIL>() {
            *to_reward = f32::from_ne_bytes([a, b, c, d]);
            *to_terminated = flags & TERMINATED != 0;
            *to_truncated = flags & TRUNCATED != 0;
        }
    }
}

/// Copies a row; the lengths of small vectors without the call of `memcpy` that others take.
#[inline]
pub(in crate::replay) fn copy_row(to: &mut [u8], from: &[u8]) {
    fn fixed<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
            *to = *from;
        }
    }
    match from.len() {
        4 => fixed::<4>(to, from),
        8 => fixed::<8>(to, from),
        12 => fixed::<12>(to, from),
        16 => fixed::<16>(to, from),
        24 => fixed::<24>(to, from),
        32 => fixed::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}
