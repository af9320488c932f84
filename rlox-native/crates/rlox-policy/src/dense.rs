//! Layers of columns.

use crate::array::{Array, round32};
use crate::error::{Result, damaged};
use crate::step::Step;

/// W x + b, of the last dimension.
pub(crate) fn linear(x: &Array, weight: &Array, bias: &Array) -> Result<Array> {
    let [outputs, inputs] = weight.dims("a weight")?;
    let Some((last, leading)) = x.shape().split_last().filter(|(last, _)| **last == inputs) else {
        return damaged(format!("a layer takes {inputs} numbers, got {:?}", x.shape()));
    };
    if bias.shape() != [outputs] {
        return damaged(format!("a bias has shape {:?}, expected [{outputs}]", bias.shape()));
    }
    let rows: usize = leading.iter().product();
    let mut data = Vec::with_capacity(rows * outputs);
    for i in 0..rows {
        let row = &x.data()[i * last..(i + 1) * last];
        for (j, b) in bias.data().iter().enumerate() {
            data.push(round32(dot(&weight.data()[j * inputs..(j + 1) * inputs], row) + b));
        }
    }
    Ok(Array::of([leading, &[outputs]].concat(), data))
}

/// The sum of products, in eight sums that a computer adds at once.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (xs, ys) in a.zip(b) {
        for ((sum, x), y) in sums.iter_mut().zip(xs).zip(ys) {
            *sum += x * y;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// A linear layer whose weight (K, `n_in`, `n_out`) has K blocks.
pub(crate) fn block_linear(x: &Array, weight: &Array, bias: &Array) -> Result<Array> {
    let [blocks, inputs, outputs] = weight.dims("a weight of blocks")?;
    let size = |each: usize| each.checked_mul(blocks);
    if size(inputs) != Some(x.width()) || bias.shape() != [blocks * outputs] {
        return damaged(format!("{blocks} blocks take {inputs} numbers each, got {:?}", x.shape()));
    }
    let mut data = Vec::with_capacity(x.rows() * blocks * outputs);
    for i in 0..x.rows() {
        for k in 0..blocks {
            let mut sums = vec![0.0; outputs];
            for (j, x) in x.row(i)[k * inputs..(k + 1) * inputs].iter().enumerate() {
                let from = (k * inputs + j) * outputs;
                for (sum, w) in sums.iter_mut().zip(&weight.data()[from..from + outputs]) {
                    *sum += x * w;
                }
            }
            let own = &bias.data()[k * outputs..(k + 1) * outputs];
            data.extend(sums.iter().zip(own).map(|(sum, b)| round32(round32(*sum) + b)));
        }
    }
    Ok(Array::of(vec![x.rows(), blocks * outputs], data))
}

/// A 1 at the place first + number, for each number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // refused above
pub(crate) fn one_hot(x: Array, first: &Array, size: usize, step: &Step<'_>) -> Result<Array> {
    step.room(Some(size))?;
    let places = x.flat().zip(first, |x, first| x + first)?;
    let mut hot = Array::zeros(vec![places.rows(), size]);
    for i in 0..places.rows() {
        let row = hot.row_mut(i);
        for place in places.row(i) {
            let at = if *place >= 0.0 { row.get_mut(*place as usize) } else { None };
            match at {
                Some(at) => *at = 1.0,
                None => {
                    return crate::error::argument(format!(
                        "obs holds a choice {place} places from the lowest of {size}; pass one of the space"
                    ));
                }
            }
        }
    }
    Ok(hot)
}

/// x / √(mean x² + eps) along the axis, times the weight.
#[allow(clippy::cast_precision_loss)] // sizes are far smaller
pub(crate) fn rms_norm(mut x: Array, weight: &Array, eps: f64, axis: i64) -> Result<Array> {
    let dims = x.shape().len();
    let from_end = usize::try_from(-axis).ok().and_then(|back| dims.checked_sub(back));
    let at = if axis < 0 { from_end } else { usize::try_from(axis).ok() };
    let Some(at) = at.filter(|at| *at < dims) else {
        return damaged(format!("there is no axis {axis} of {:?}", x.shape()));
    };
    let shape = x.shape().to_vec();
    let (n, inner) = (shape[at], shape[at + 1..].iter().product::<usize>());
    let mut data = std::mem::replace(&mut x, Array::zeros(vec![0])).into_data();
    for part in data.chunks_mut((n * inner).max(1)) {
        for i in 0..inner {
            let squares: f64 = part.iter().skip(i).step_by(inner).map(|x| x * x).sum();
            let size = round32((squares / n as f64 + round32(eps)).sqrt());
            part.iter_mut().skip(i).step_by(inner).for_each(|x| *x = round32(*x / size));
        }
    }
    Array::of(shape, data).zip(weight, |x, w| round32(x * w))
}

/// value + advantage - mean advantage.
#[allow(clippy::cast_precision_loss)] // sizes are far smaller
pub(crate) fn dueling(value: &Array, advantage: Array, atoms: usize) -> Result<Array> {
    let n = atoms.max(1);
    let (rows, width) = (advantage.rows(), advantage.width());
    let advantage = advantage.reshaped(vec![rows, width / n, n])?;
    if value.width() != n || value.rows() != rows || width == 0 {
        return damaged(format!("values {:?} have no {n} atoms", value.shape()));
    }
    let mut data = Vec::with_capacity(rows * width);
    for i in 0..rows {
        let own = advantage.row(i);
        let mean = |atom: usize| own.iter().skip(atom).step_by(n).sum::<f64>() / (width / n) as f64;
        let means: Vec<f64> = (0..n).map(mean).collect();
        data.extend(
            own.iter()
                .enumerate()
                .map(|(j, x)| round32(round32(value.row(i)[j % n] + x) - round32(means[j % n]))),
        );
    }
    let shape = if atoms == 0 { vec![rows, width] } else { vec![rows, width / n, n] };
    Ok(Array::of(shape, data))
}

/// The mean of a distribution with these logits over atoms.
pub(crate) fn expected(x: &Array, support: &Array) -> Result<Array> {
    let Some((n, leading)) =
        x.shape().split_last().filter(|(n, _)| support.shape() == [**n] && **n > 0)
    else {
        return damaged(format!(
            "{:?} is no distribution over {:?} atoms",
            x.shape(),
            support.shape()
        ));
    };
    let mean = |logits: &[f64]| {
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|x| (x - top).exp()).collect();
        round32(dot(&weights, support.data()) / weights.iter().sum::<f64>())
    };
    Ok(Array::of(leading.to_vec(), x.data().chunks(*n).map(mean).collect()))
}

/// The mean over the last dimension.
#[allow(clippy::cast_precision_loss)] // sizes are far smaller
pub(crate) fn mean(x: &Array) -> Array {
    let (n, leading) = x.shape().split_last().map_or((1, &[][..]), |(n, leading)| (*n, leading));
    let rows: usize = leading.iter().product();
    let of_row = |i| round32(x.data()[i * n..(i + 1) * n].iter().sum::<f64>() / n as f64);
    Array::of(leading.to_vec(), (0..rows).map(of_row).collect())
}
