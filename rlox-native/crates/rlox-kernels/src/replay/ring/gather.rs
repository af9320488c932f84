//! Copying records out of a ring.

use std::mem::swap;
use std::ops::Range;

use super::Ring;
use crate::replay::batch::Batch;
use crate::replay::layout::{LINE, Parts, TAIL, TERMINATED, TRUNCATED};
use crate::threads::Meter;

/// Records copied at once: enough to keep the memory busy, few enough to stay cached.
const TOGETHER: usize = 32;

/// Rows up to this size are copied without a call of `memcpy`.
const MIDDLE: usize = 256;

/// Records from this size on are not prefetched.
const LONG: usize = 16 * LINE;

/// Bytes per block of a thread's work: about the size of the second-level cache.
const BLOCK: usize = 1 << 18;

impl Ring {
    /// Copies the transitions that begin in `slots`: single steps or spans.
    pub(in crate::replay) fn draw(&self, slots: &[usize], out: &mut Batch<'_>) {
        if self.layout.n_step.n_step > 1 {
            self.in_blocks(slots, &self.cost, out, |slots, out| self.copy_spans(slots, out));
        } else {
            self.gather(slots, out);
        }
    }

    /// Copies the transitions in `slots` into `out`, which has passed [`Ring::check_out`].
    pub(in crate::replay) fn gather(&self, slots: &[usize], out: &mut Batch<'_>) {
        let copy = |slots: &[usize], out: &mut Batch<'_>| self.copy(slots.iter().copied(), out);
        self.in_blocks(slots, &self.cost, out, copy);
    }

    /// Calls `write` on blocks of the rows of `out` and of `drawn`, on several threads if there are
    /// enough rows.
    pub(in crate::replay) fn in_blocks<T: Sync>(
        &self,
        drawn: &[T],
        cost: &Meter,
        out: &mut Batch<'_>,
        write: impl Fn(&[T], &mut Batch<'_>) + Sync,
    ) {
        let n = (BLOCK / (2 * self.parts.obs_row + self.parts.action)).max(1);
        if drawn.len() <= n {
            return write(drawn, out);
        }
        let blocks = drawn.chunks(n).zip(out.blocks(n, &self.layout)).collect();
        cost.for_each(drawn.len(), blocks, |(drawn, mut out)| write(drawn, &mut out));
    }

    /// Does the work of [`Ring::gather`] on this thread.
    pub(super) fn copy(&self, slots: impl Iterator<Item = usize>, out: &mut Batch<'_>) {
        let records = slots.map(|slot| self.record(slot));
        let Some(frames) = &self.frames else {
            return copy_records(self.parts, records, out, copy_column);
        };
        copy_records(self.parts, records, out, |to, records, begin, size| {
            for (to, record) in to.chunks_exact_mut(size).zip(records) {
                frames.copy(to, &record[begin..][..self.parts.obs]);
            }
        });
    }
}

/// Copies records into all rows of `out`. `copy_obs` copies rows of observations, given their size
/// and their offset in the records, both in bytes.
///
/// Works field by field in blocks of records: row lengths are decided upon once per block, and the
/// next block is prefetched meanwhile.
pub(in crate::replay) fn copy_records<'r>(
    parts: Parts,
    records: impl Iterator<Item = &'r [u8]>,
    out: &mut Batch<'_>,
    copy_obs: impl Fn(&mut [u8], &[&'r [u8]], usize, usize),
) {
    let mut records = records.take(out.rewards.len());
    let mut blocks: [[&[u8]; TOGETHER]; 2] = [[&[]; TOGETHER]; 2];
    let [mut block, mut next] = blocks.each_mut();
    let mut n = collect(&mut records, block);
    let mut first = 0;
    while n > 0 {
        let n_next = collect(&mut records, next);
        let (records, rows) = (&block[..n], first..first + n);
        let (obs, actions) = (bytes_of(&rows, parts.obs_row), bytes_of(&rows, parts.action));
        copy_obs(&mut out.obs.bytes()[obs.clone()], records, 0, parts.obs_row);
        if let Some(next_obs) = &mut out.next_obs {
            copy_obs(&mut next_obs.bytes()[obs], records, parts.obs, parts.obs_row);
        }
        copy_column(&mut out.actions.bytes()[actions], records, 2 * parts.obs, parts.action);
        let ends = out.terminated[rows.clone()].iter_mut().zip(&mut out.truncated[rows.clone()]);
        let tails = records.iter().map(|record| &record[2 * parts.obs + parts.action..]);
        for ((tail, reward), (terminated, truncated)) in tails.zip(&mut out.rewards[rows]).zip(ends)
        {
            if let Some(&[a, b, c, d, flags]) = tail.first_chunk::<TAIL>() {
                *reward = f32::from_ne_bytes([a, b, c, d]);
                *terminated = flags & TERMINATED != 0;
                *truncated = flags & TRUNCATED != 0;
            }
        }
        first += n;
        n = n_next;
        swap(&mut block, &mut next);
    }
}

/// Fills `block` with the next records and prefetches them, so that their cache misses overlap with
/// each other and with other work. Long records are left to the processor's own prefetching.
#[inline]
fn collect<'r>(
    records: &mut impl Iterator<Item = &'r [u8]>,
    block: &mut [&'r [u8]; TOGETHER],
) -> usize {
    let mut n = 0;
    for (place, record) in block.iter_mut().zip(records) {
        *place = record;
        n += 1;
        if record.len() <= LONG {
            record.iter().step_by(LINE).for_each(prefetch);
        }
    }
    n
}

fn bytes_of(rows: &Range<usize>, size: usize) -> Range<usize> {
    rows.start * size..rows.end * size
}

/// Copies `size` bytes of each record, from `begin` on; common small sizes without a call of
/// `memcpy`.
pub(in crate::replay) fn copy_column(to: &mut [u8], records: &[&[u8]], begin: usize, size: usize) {
    fn fixed<const N: usize>(to: &mut [u8], records: &[&[u8]], begin: usize) {
        for (to, record) in to.as_chunks_mut::<N>().0.iter_mut().zip(records) {
            if let Some(from) = record[begin..].first_chunk() {
                *to = *from;
            }
        }
    }
    match size {
        4 => fixed::<4>(to, records, begin),
        8 => fixed::<8>(to, records, begin),
        12 => fixed::<12>(to, records, begin),
        16 => fixed::<16>(to, records, begin),
        24 => fixed::<24>(to, records, begin),
        32 => fixed::<32>(to, records, begin),
        33..=MIDDLE => {
            for (to, record) in to.chunks_exact_mut(size).zip(records) {
                copy_vectors(to, &record[begin..][..size]);
            }
        }
        _ => {
            for (to, record) in to.chunks_exact_mut(size).zip(records) {
                to.copy_from_slice(&record[begin..][..size]);
            }
        }
    }
}

/// Copies at least 32 bytes, 32 at a time; the last copy may overlap the one before.
#[inline]
fn copy_vectors(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.as_chunks_mut::<32>().0.iter_mut().zip(from.as_chunks::<32>().0) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<32>(), from.last_chunk::<32>()) {
        *to = *from;
    }
}

/// Prefetches a cache line.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "prefetching has no safe name")]
fn prefetch(byte: &u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: prefetching changes nothing, whatever the address, and every x86-64 processor can.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
}

/// Loads a cache line by reading from it.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(byte: &u8) {
    std::hint::black_box(*byte);
}
