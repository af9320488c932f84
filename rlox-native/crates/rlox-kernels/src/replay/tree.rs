//! Sums and minima over all priorities, kept in two binary trees.

use super::pages::Pages;
use crate::error::{KernelError, Result};

/// A sum tree and a min tree over the same leaves.
///
/// Node 1 is the root, the children of node k are 2k and 2k + 1, and the leaves come last. A node is
/// always computed from its children, so that rounding does not pile up and the same leaves give the
/// same trees. Leaves without a priority are 0 in the sums and ∞ in the minima. The trees have as many
/// levels as the leaves in use need, in memory that is reserved for all.
#[derive(Debug)]
pub(super) struct PriorityTree {
    sums: Pages<f64>,
    mins: Pages<f64>,
    /// Where the leaves begin: a power of two.
    first_leaf: usize,
    /// The nodes that are being set, kept for their memory.
    nodes: Vec<usize>,
}

impl PriorityTree {
    /// Bytes of the trees over so many leaves; `None` where no address space could hold them.
    pub(super) fn memory_bytes(leaves: usize) -> Option<usize> {
        leaves.checked_next_power_of_two()?.checked_mul(4 * size_of::<f64>())
    }

    pub(super) fn new(leaves: usize) -> Result<Self> {
        let out_of_memory = KernelError::OutOfMemory { name: "capacity", requested: leaves };
        Self::memory_bytes(leaves).ok_or(out_of_memory)?;
        let pages = || Pages::new(2 * leaves.next_power_of_two(), "capacity", leaves);
        let mut tree = Self { sums: pages()?, mins: pages()?, first_leaf: 1, nodes: Vec::new() };
        tree.clear(1);
        Ok(tree)
    }

    /// The sum of all priorities.
    pub(super) fn total(&self) -> f64 {
        self.sums[1]
    }

    /// The smallest priority.
    pub(super) fn min(&self) -> f64 {
        self.mins[1]
    }

    pub(super) fn get(&self, leaf: usize) -> f64 {
        self.sums[self.first_leaf + leaf]
    }

    /// Sets a leaf and all nodes above it.
    pub(super) fn set(&mut self, leaf: usize, priority: f64) {
        if leaf >= self.first_leaf {
            self.grow(leaf + 1);
        }
        let mut node = self.first_leaf + leaf;
        self.sums[node] = priority;
        self.mins[node] = priority;
        while node > 1 {
            node /= 2;
            self.update(node);
        }
    }

    /// Sets leaves that there are, and all nodes above them, level by level: once where leaves share
    /// them, and with misses of the cache that overlap. Of several priorities for a leaf the last
    /// counts.
    pub(super) fn set_many(&mut self, leaves: impl Iterator<Item = (usize, f64)>) {
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.clear();
        for (leaf, priority) in leaves {
            let node = self.first_leaf + leaf;
            self.sums[node] = priority;
            self.mins[node] = priority;
            nodes.push(node);
        }
        nodes.sort_unstable();
        while nodes.first().is_some_and(|&node| node > 1) {
            for node in &mut nodes {
                *node /= 2;
            }
            nodes.dedup();
            for &node in &nodes {
                self.update(node);
            }
        }
        self.nodes = nodes;
    }

    /// Sets the first leaves, and the others to nothing.
    pub(super) fn fill(&mut self, priorities: &[f64]) {
        self.clear(priorities.len().next_power_of_two());
        self.sums[self.first_leaf..][..priorities.len()].copy_from_slice(priorities);
        self.mins[self.first_leaf..][..priorities.len()].copy_from_slice(priorities);
        self.update_all();
    }

    /// Makes room for so many leaves, more than there are: at least doubles the trees.
    fn grow(&mut self, leaves: usize) {
        let (old, new) = (self.first_leaf, leaves.next_power_of_two());
        for (tree, nothing) in [(&mut self.sums, 0.0), (&mut self.mins, f64::INFINITY)] {
            tree.copy_within(old..2 * old, new);
            tree[new + old..2 * new].fill(nothing);
        }
        self.first_leaf = new;
        self.update_all();
    }

    /// Becomes a tree of so many leaves, a power of two, without priorities.
    fn clear(&mut self, leaves: usize) {
        self.sums[..2 * leaves].fill(0.0);
        self.mins[..2 * leaves].fill(f64::INFINITY);
        self.first_leaf = leaves;
    }

    fn update_all(&mut self) {
        (1..self.first_leaf).rev().for_each(|node| self.update(node));
    }

    fn update(&mut self, node: usize) {
        self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1];
        self.mins[node] = self.mins[2 * node].min(self.mins[2 * node + 1]);
    }

    /// For each mass in [0, total) the leaf at which the running sum of the priorities exceeds it.
    ///
    /// Rounding, and a mass outside the range, end at a leaf that has a priority all the same. All
    /// descend together, so that their misses of the cache overlap; the masses are used up.
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "a branch would be mispredicted half the time"
    )]
    pub(super) fn find(&self, masses: &mut [f64], leaves: &mut [usize]) {
        leaves.fill(1);
        let mut width = 1;
        while width < self.first_leaf {
            for (mass, node) in masses.iter_mut().zip(leaves.iter_mut()) {
                let (left, right) = (self.sums[2 * *node], self.sums[2 * *node + 1]);
                let goes_right = (*mass >= left) & (right > 0.0);
                *mass -= if goes_right { left } else { 0.0 };
                *node = 2 * *node + usize::from(goes_right);
            }
            width *= 2;
        }
        for leaf in leaves {
            *leaf -= self.first_leaf;
        }
    }
}
