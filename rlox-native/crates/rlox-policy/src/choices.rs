//! Most probable choices.

use crate::array::{Array, round32};
use crate::error::{Result, damaged};
use crate::tree::Node;

/// Columns of outputs that one leaf of the actions is made of.
pub(crate) struct Part {
    kind: Kind,
    sizes: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Numbers,
    Binary,
    Choices,
}

impl Part {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self> {
        let kind = match node.get("kind")?.text()? {
            "numbers" => Kind::Numbers,
            "binary" => Kind::Binary,
            "choices" => Kind::Choices,
            _ => return node.get("kind")?.expected("numbers, binary or choices"),
        };
        let sizes = node.get("sizes")?;
        let found = sizes.sizes()?;
        if found.contains(&0) {
            return sizes.expected("at least 1 each");
        }
        Ok(Self { kind, sizes: found })
    }
}

/// The place of the largest, the first of equal ones; as NumPy has it, a NaN is larger than all.
fn argmax(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (i, value) in values.enumerate() {
        if !best.1.is_nan() && (value > best.1 || value.is_nan()) {
            best = (i, value);
        }
    }
    best.0
}

/// 1 at the largest of each part of the columns, 0 at the others.
pub(crate) fn most_probable(x: &Array, sizes: &[usize]) -> Result<Array> {
    if sizes.iter().sum::<usize>() != x.width() || sizes.contains(&0) {
        return damaged(format!("{sizes:?} choices are not of {:?}", x.shape()));
    }
    let mut hot = Array::zeros(x.shape().to_vec());
    for i in 0..x.rows() {
        let mut at = 0;
        for size in sizes {
            let best = argmax(x.row(i)[at..at + size].iter().copied());
            hot.row_mut(i)[at + best] = 1.0;
            at += size;
        }
    }
    Ok(hot)
}

/// Rows of actions.
#[allow(clippy::cast_precision_loss)] // places can be counted
pub(crate) fn mode(
    x: &Array,
    parts: &[Part],
    plain: bool,
    masks: Option<&[bool]>,
) -> Result<Array> {
    let all = || parts.iter().flat_map(|part| part.sizes.iter().map(|size| (part.kind, *size)));
    let n_columns = all().count();
    if all().fold(0_usize, |sum, (_, size)| sum.saturating_add(size)) != x.width()
        || (plain && n_columns != 1)
    {
        return damaged(format!("its outputs {:?} are not those of its actions", x.shape()));
    }
    let choices = |(kind, size)| match kind {
        Kind::Numbers => 0,
        Kind::Binary => size + 1,
        Kind::Choices => size,
    };
    let mask_size: usize = all().map(choices).sum();
    if masks.is_some_and(|masks| masks.len() != x.rows() * mask_size) {
        return damaged(format!("its outputs have {mask_size} choices, its actions others"));
    }
    let mut data = Vec::with_capacity(x.rows() * n_columns);
    for i in 0..x.rows() {
        let (mut at, mut mask_at) = (0, i * mask_size);
        for (kind, size) in all() {
            let outputs = &x.row(i)[at..at + size];
            at += size;
            let zero = if kind == Kind::Binary { &[0.0][..] } else { &[] };
            let logits = zero.iter().chain(outputs).copied();
            data.push(match (kind, masks) {
                // one alone stays as precise as it is, like NumPy's
                (Kind::Numbers, _) if plain => outputs[0],
                (Kind::Numbers, _) => round32(outputs[0]),
                (_, None) => argmax(logits) as f64,
                (_, Some(masks)) => {
                    let possible = logits.zip(&masks[mask_at..]);
                    argmax(possible.map(|(x, may)| if *may { x } else { f64::NEG_INFINITY })) as f64
                }
            });
            mask_at += choices((kind, size));
        }
    }
    Ok(Array::of(if plain { vec![x.rows()] } else { vec![x.rows(), n_columns] }, data))
}
