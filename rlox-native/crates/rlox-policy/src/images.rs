//! Layers of images (B, channels, height, width).

use crate::array::{Array, count, round32};
use crate::error::{Result, damaged};
use crate::step::Step;

/// Images with their channels first, divided.
pub(crate) fn image(x: Array, channels_first: bool, divide_by: f64) -> Result<Array> {
    let by = round32(divide_by);
    if let &[rows, height, width] = x.shape() {
        return Ok(x.reshaped(vec![rows, 1, height, width])?.map32(|x| x / by));
    }
    let [rows, height, width, channels] = x.dims("an image")?;
    if channels_first {
        return Ok(x.map32(|x| x / by));
    }
    let mut data = Vec::with_capacity(x.data().len());
    for i in 0..rows {
        for c in 0..channels {
            data.extend(x.row(i).iter().skip(c).step_by(channels).map(|x| round32(x / by)));
        }
    }
    Ok(Array::of(vec![rows, channels, height, width], data))
}

/// Zeros around images: top, bottom, left, right.
pub(crate) fn pad(x: &Array, sides: [usize; 4], step: &Step<'_>) -> Result<Array> {
    let [rows, channels, height, width] = x.dims("an image")?;
    let [top, bottom, left, right] = sides;
    let (full_height, full_width) = (top + height + bottom, left + width + right);
    step.room(count(&[channels, full_height, full_width]))?;
    let mut padded = Array::zeros(vec![rows, channels, full_height, full_width]);
    for i in 0..rows {
        let (old, new) = (x.row(i), padded.row_mut(i));
        for line in 0..channels * height {
            let (c, h) = (line / height, line % height);
            let to = (c * full_height + top + h) * full_width + left;
            new[to..to + width].copy_from_slice(&old[line * width..(line + 1) * width]);
        }
    }
    Ok(padded)
}

/// The largest of squares, side by side.
pub(crate) fn max_pool(x: &Array, size: usize) -> Result<Array> {
    let [rows, channels, height, width] = x.dims("an image")?;
    if height % size != 0 || width % size != 0 {
        return damaged(format!("an image {:?} has no whole squares of {size}", x.shape()));
    }
    let (lines, places) = (height / size, width / size);
    let mut pooled = vec![f64::NEG_INFINITY; rows * channels * lines * places];
    for (at, value) in x.data().iter().enumerate() {
        let (image, h, w) = (at / width / height, at / width % height, at % width);
        let best = &mut pooled[(image * lines + h / size) * places + w / size];
        // keeps a NaN
        if *value > *best || value.is_nan() {
            *best = *value;
        }
    }
    Ok(Array::of(vec![rows, channels, lines, places], pooled))
}

/// A convolution without padding.
pub(crate) fn convolution(
    x: &Array,
    weight: &Array,
    bias: &Array,
    stride: usize,
    step: &Step<'_>,
) -> Result<Array> {
    let [rows, channels, height, width] = x.dims("an image")?;
    let [outputs, inputs, tall, wide] = weight.dims("a weight of convolutions")?;
    if inputs != channels
        || tall > height
        || wide > width
        || bias.shape() != [outputs]
        || tall * wide == 0
    {
        return damaged(format!(
            "a weight {:?} does not fit an image {:?}",
            weight.shape(),
            x.shape()
        ));
    }
    let (lines, places) = ((height - tall) / stride + 1, (width - wide) / stride + 1);
    step.room(count(&[outputs, lines, places]))?;
    let mut data = Vec::with_capacity(rows * outputs * lines * places);
    for i in 0..rows {
        let image = x.row(i);
        for (o, b) in bias.data().iter().enumerate() {
            let own = &weight.data()[o * inputs * tall * wide..(o + 1) * inputs * tall * wide];
            let mut sums = vec![0.0; lines * places];
            for (k, w) in own.iter().enumerate() {
                let (c, dh, dw) = (k / wide / tall, k / wide % tall, k % wide);
                for (line, sums) in sums.chunks_mut(places).enumerate() {
                    let from = (c * height + line * stride + dh) * width + dw;
                    let seen = image[from..].iter().step_by(stride);
                    sums.iter_mut().zip(seen).for_each(|(sum, x)| *sum += w * x);
                }
            }
            data.extend(sums.into_iter().map(|sum| round32(sum + b)));
        }
    }
    Ok(Array::of(vec![rows, outputs, lines, places], data))
}
