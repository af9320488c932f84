//! Preprocessing: normalised observations, and the last few of an episode.

use std::sync::Arc;

use crate::array::{Array, Leaves};
use crate::error::{Result, argument, damaged};
use crate::space::Space;
use crate::tree::Node;

const CLIP: f64 = 10.0;
const EPSILON: f64 = 1e-8;

pub(crate) struct Preprocessor {
    leaves: Vec<Seen>,
    frames: usize,
}

/// How a leaf is seen.
struct Seen {
    name: String,
    shape: Vec<usize>,
    is_box: bool,
    moments: Option<[Arc<Array>; 2]>,
}

impl Preprocessor {
    pub(crate) fn read(node: &Node<'_>, space: &Space) -> Result<Self> {
        let moments = node.get("moments")?;
        let mut leaves = Vec::new();
        for (name, leaf) in space.leaves() {
            let found = match moments.find(&name) {
                Some(of_leaf) => {
                    Some([of_leaf.get("mean")?.array()?, of_leaf.get("variance")?.array()?])
                }
                None => None,
            };
            if found.iter().flatten().any(|array| array.shape() != leaf.shape) {
                return damaged(format!("the moments of leaf '{name}' have another shape"));
            }
            let (shape, is_box) = (leaf.shape.clone(), leaf.bounds.is_some());
            leaves.push(Seen { name, shape, is_box, moments: found });
        }
        let frames = node.get("frame_stack")?;
        if frames.size()? == 0 {
            return frames.expected("at least 1");
        }
        Ok(Self { leaves, frames: frames.size()? })
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.frames > 1
    }

    /// Return what is seen of B observations.
    ///
    /// `starts` are the rows that an episode begins with.
    pub(crate) fn see(
        &self,
        mut obs: Leaves,
        before: Option<&Leaves>,
        starts: &[bool],
    ) -> Result<Leaves> {
        for leaf in &self.leaves {
            let Some(array) = obs.remove(&leaf.name) else { continue };
            let mut array = leaf.normalized(array)?;
            if self.has_frames() {
                let stack = before.and_then(|before| before.get(&leaf.name));
                array = leaf.stacked(&array, self.frames, stack, starts)?;
            }
            obs.insert(leaf.name.clone(), array);
        }
        Ok(obs)
    }
}

impl Seen {
    fn normalized(&self, array: Array) -> Result<Array> {
        let Some([mean, variance]) = &self.moments else {
            return Ok(array);
        };
        let centred = array.zip(mean, |x, mean| x - mean)?;
        let scaled = centred.zip(variance, |x, variance| x / (variance + EPSILON).sqrt())?;
        Ok(scaled.map32(|x| x.clamp(-CLIP, CLIP)))
    }

    /// The frames joined along the axis of the channels, the oldest first.
    fn stacked(
        &self,
        frame: &Array,
        k: usize,
        before: Option<&Array>,
        starts: &[bool],
    ) -> Result<Array> {
        let mut shape = self.shape.clone();
        if shape.is_empty() || (shape.len() == 2 && self.is_box) {
            shape.push(1);
        }
        let first = shape.len() == 3 && self.shape.len() == 3 && shape[0] < shape[2];
        let axis = if first { 0 } else { shape.len() - 1 };
        let inner: usize = shape[axis..].iter().product();
        let outer: usize = shape[..axis].iter().product();
        shape[axis] *= k;
        let full = [&[frame.rows()], shape.as_slice()].concat();
        if before.is_some_and(|before| before.shape() != full) {
            return argument(
                "the memory is of another number of episodes; begin with a new Memory",
            );
        }
        let mut data = Vec::with_capacity(frame.data().len() * k);
        for i in 0..frame.rows() {
            let new = frame.row(i);
            let old = before.filter(|_| !starts.get(i).unwrap_or(&true)).map(|b| b.row(i));
            for part in 0..outer {
                let own = &new[part * inner..(part + 1) * inner];
                match old {
                    Some(old) => {
                        data.extend_from_slice(
                            &old[(part * k + 1) * inner..(part + 1) * k * inner],
                        );
                    }
                    None => (1..k).for_each(|_| data.extend_from_slice(own)),
                }
                data.extend_from_slice(own);
            }
        }
        Ok(Array::of(full, data))
    }
}
