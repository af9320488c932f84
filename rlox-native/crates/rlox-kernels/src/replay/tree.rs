//! Sums and minima over all priorities, kept in trees.

use super::pages::Pages;
use crate::error::Result;

/// Children of a node: their sums fill a cache line.
const FAN: usize = 8;

/// A sum tree and a min tree over the same leaves.
///
/// A level holds a node for every eight of the level below, up to one of at most eight. A node is
/// always computed from its children, so rounding errors do not add up and equal leaves give equal
/// trees. A leaf without a priority is 0, as are sum and minimum of eight such.
#[derive(Debug)]
pub(super) struct PriorityTree {
    /// The leaves.
    priorities: Pages<f64>,
    /// The levels above, the lowest first.
    levels: Vec<Level>,
    /// Number of leaves that may have priorities.
    used: usize,
    /// Nodes being set, kept to reuse their memory.
    nodes: Vec<usize>,
}

#[derive(Debug)]
struct Level {
    sums: Pages<f64>,
    mins: Pages<f64>,
}

impl PriorityTree {
    /// Bytes of the trees over `leaves` leaves; `None` if no address space could hold them.
    pub(super) fn memory_bytes(leaves: usize) -> Option<usize> {
        let nodes = |width: usize| width.checked_mul(2 * size_of::<f64>());
        let leaf_bytes = padded(leaves).checked_mul(size_of::<f64>());
        widths(leaves).try_fold(leaf_bytes?, |bytes, width| bytes.checked_add(nodes(width)?))
    }

    pub(super) fn new(leaves: usize) -> Result<Self> {
        let pages = |len| Pages::new(len, "capacity", leaves);
        let level = |width| Ok(Level { sums: pages(width)?, mins: pages(width)? });
        let levels = widths(leaves).map(level).collect::<Result<_>>()?;
        Ok(Self { priorities: pages(padded(leaves))?, levels, used: 0, nodes: Vec::new() })
    }

    /// The sum of all priorities.
    pub(super) fn total(&self) -> f64 {
        self.levels.last().map_or(&self.priorities, |level| &level.sums).iter().sum()
    }

    /// The smallest priority.
    pub(super) fn min(&self) -> f64 {
        smallest(self.levels.last().map_or(&self.priorities, |level| &level.mins))
    }

    pub(super) fn get(&self, leaf: usize) -> f64 {
        self.priorities[leaf]
    }

    /// Sets a leaf and all nodes above it.
    pub(super) fn set(&mut self, leaf: usize, priority: f64) {
        self.priorities[leaf] = priority;
        self.used = self.used.max(leaf + 1);
        let mut node = leaf;
        for level in 0..self.levels.len() {
            node /= FAN;
            self.update(level, node);
        }
    }

    /// Sets leaves and all nodes above them, level by level: each shared node once, with
    /// overlapping cache misses. If a leaf is given several priorities, the last counts.
    pub(super) fn set_many(&mut self, leaves: impl Iterator<Item = (usize, f64)>) {
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.clear();
        for (leaf, priority) in leaves {
            self.priorities[leaf] = priority;
            self.used = self.used.max(leaf + 1);
            nodes.push(leaf);
        }
        nodes.sort_unstable();
        for level in 0..self.levels.len() {
            for node in &mut nodes {
                *node /= FAN;
            }
            nodes.dedup();
            for &node in &nodes {
                self.update(level, node);
            }
        }
        self.nodes = nodes;
    }

    /// Sets the first leaves and clears the others.
    pub(super) fn fill(&mut self, priorities: &[f64]) {
        self.priorities[..self.used].fill(0.0);
        self.priorities[..priorities.len()].copy_from_slice(priorities);
        let mut width = self.used.max(priorities.len());
        for level in 0..self.levels.len() {
            width = width.div_ceil(FAN);
            for node in 0..width {
                self.update(level, node);
            }
        }
        self.used = priorities.len();
    }

    fn update(&mut self, level: usize, node: usize) {
        let children = node * FAN..(node + 1) * FAN;
        let (below, above) = self.levels.split_at_mut(level);
        let (sums, mins) = match below.last() {
            Some(level) => (&level.sums[children.clone()], &level.mins[children]),
            None => (&self.priorities[children.clone()], &self.priorities[children]),
        };
        if let Some(level) = above.first_mut() {
            level.sums[node] = sums.iter().sum();
            level.mins[node] = smallest(mins);
        }
    }

    /// For each mass in [0, total) the leaf at which the running sum of the priorities exceeds it.
    ///
    /// Despite rounding, and for a mass outside the range, the result is a leaf with a priority.
    /// All descend together, so that their cache misses overlap; the masses are overwritten.
    pub(super) fn find(&self, masses: &mut [f64], leaves: &mut [usize]) {
        leaves.fill(0);
        let sums = self.levels.iter().rev().map(|level| &level.sums);
        for sums in sums.chain(std::iter::once(&self.priorities)) {
            for (mass, node) in masses.iter_mut().zip(leaves.iter_mut()) {
                let (child, before) = descend(&sums[*node * FAN..][..FAN], *mass);
                *mass -= before;
                *node = *node * FAN + child;
            }
        }
    }
}

/// The child whose share of the running sum contains a mass, and the sum before it.
fn descend(priorities: &[f64], mass: f64) -> (usize, f64) {
    let mut sums = [0.0; FAN];
    for k in 1..FAN {
        sums[k] = sums[k - 1] + priorities[k - 1];
    }
    // Counts instead of searching: a branch would be mispredicted.
    let child = sums[1..].iter().map(|&sum| usize::from(sum <= mass)).sum();
    if priorities[child] > 0.0 {
        return (child, sums[child]);
    }
    // A mass beyond all belongs to the last child with a share.
    let last = priorities.iter().rposition(|&priority| priority > 0.0).unwrap_or(0);
    (last, sums[last])
}

/// The smallest nonzero number, or 0 if there is none.
fn smallest(numbers: &[f64]) -> f64 {
    let priorities = numbers.iter().map(|&x| if x > 0.0 { x } else { f64::INFINITY });
    let smallest = priorities.fold(f64::INFINITY, f64::min);
    if smallest == f64::INFINITY { 0.0 } else { smallest }
}

/// Nodes of a level in memory, rounded up to whole cache lines.
fn padded(nodes: usize) -> usize {
    nodes.div_ceil(FAN).saturating_mul(FAN)
}

/// The widths in memory of the levels above `leaves` leaves.
fn widths(leaves: usize) -> impl Iterator<Item = usize> {
    let above = |&nodes: &usize| (nodes > FAN).then(|| nodes.div_ceil(FAN));
    std::iter::successors(above(&leaves), above).map(padded)
}
