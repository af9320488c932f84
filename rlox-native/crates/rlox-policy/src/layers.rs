//! Layers of policy files: what they are, and their computation.
//!
//! The kinds and keys are those of the Python package's `rlox.deployment.layers`.

use std::sync::Arc;

use crate::activations::{Function, named};
use crate::array::{Array, Leaves, round32, side_by_side};
use crate::choices::{Part, mode, most_probable};
use crate::dense::{block_linear, dueling, expected, linear, mean, one_hot, rms_norm};
use crate::error::{Error, Result, damaged};
use crate::images::{convolution, image, max_pool, pad};
use crate::memory::{Recurrent, WorldModel};
use crate::step::{Step, columns};
use crate::tree::Node;

pub(crate) enum Layer {
    Chain(Vec<Layer>),
    OfAgent(f64),
    Join(Vec<(String, Layer)>),
    Beside(Vec<Layer>),
    Flatten(f64),
    OneHot { first: Arc<Array>, size: usize },
    Image { channels_first: bool, divide_by: f64 },
    Pad([usize; 4]),
    Convolution { weight: Arc<Array>, bias: Arc<Array>, stride: usize },
    MaxPool(usize),
    Linear { weight: Arc<Array>, bias: Arc<Array> },
    BlockLinear { weight: Arc<Array>, bias: Arc<Array> },
    Activation(Function),
    RmsNorm { weight: Arc<Array>, eps: f64, axis: i64 },
    Normalize { mean: Arc<Array>, std: Arc<Array> },
    Affine { scale: Arc<Array>, shift: Arc<Array> },
    Memory(Recurrent),
    WorldModel(Box<WorldModel>),
    MostProbable(Vec<usize>),
    Atoms(usize),
    Dueling { value: Box<Layer>, advantage: Box<Layer>, atoms: usize },
    Expected(Arc<Array>),
    Mean,
    FirstHalf,
    Mode { parts: Vec<Part>, plain: bool },
}

/// What a layer is given.
#[derive(Clone)]
pub(crate) enum Input {
    Array(Array),
    Leaves(Leaves),
}

impl Layer {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self> {
        let kind = node.get("layer")?;
        let all = |key| node.get(key)?.list()?.iter().map(Self::read).collect::<Result<Vec<_>>>();
        let one = |key| Ok::<_, Error>(Box::new(Self::read(&node.get(key)?)?));
        let array = |key| node.get(key)?.array();
        let dense = |key| node.get(key)?.array_of::<1>();
        Ok(match kind.text()? {
            "chain" => Self::Chain(all("layers")?),
            #[allow(clippy::cast_precision_loss)] // agents can be counted
            "of_agent" => Self::OfAgent(node.get("number")?.whole()? as f64),
            "join" => {
                let mut leaves = Vec::new();
                for pair in node.get("leaves")?.list()? {
                    let [name, layer] = pair.pair()?;
                    leaves.push((name.text()?.to_owned(), Self::read(&layer)?));
                }
                Self::Join(leaves)
            }
            "beside" => Self::Beside(all("layers")?),
            "flatten" => Self::Flatten(node.get("divide_by")?.number()?),
            "one_hot" => Self::OneHot { first: array("first")?, size: node.get("size")?.size()? },
            "image" => Self::Image {
                channels_first: node.get("channels_first")?.flag()?,
                divide_by: node.get("divide_by")?.number()?,
            },
            "pad" => {
                let sides = node.get("sides")?;
                Self::Pad(
                    <[usize; 4]>::try_from(sides.sizes()?)
                        .or_else(|_| sides.expected("4 sides"))?,
                )
            }
            "convolution" => Self::Convolution {
                weight: node.get("weight")?.array_of::<4>()?,
                bias: dense("bias")?,
                stride: positive(&node.get("stride")?)?,
            },
            "max_pool" => Self::MaxPool(positive(&node.get("size")?)?),
            "linear" => {
                Self::Linear { weight: node.get("weight")?.array_of::<2>()?, bias: dense("bias")? }
            }
            "block_linear" => Self::BlockLinear {
                weight: node.get("weight")?.array_of::<3>()?,
                bias: dense("bias")?,
            },
            "activation" => {
                let function = node.get("function")?;
                Self::Activation(
                    named(function.text()?).map_or_else(|| function.expected("a function"), Ok)?,
                )
            }
            "rms_norm" => Self::RmsNorm {
                weight: array("weight")?,
                eps: node.get("eps")?.number()?,
                axis: node.get("axis")?.whole()?,
            },
            "normalize" => Self::Normalize { mean: array("mean")?, std: array("std")? },
            "affine" => Self::Affine { scale: array("scale")?, shift: array("shift")? },
            "memory" => Self::Memory(Recurrent::read(node)?),
            "world_model" => Self::WorldModel(Box::new(WorldModel::read(node)?)),
            "most_probable" => Self::MostProbable(node.get("sizes")?.sizes()?),
            "atoms" => Self::Atoms(positive(&node.get("count")?)?),
            "dueling" => {
                let atoms = node.get("atoms")?;
                let count = if atoms.is_null() { 0 } else { atoms.size()? };
                Self::Dueling { value: one("value")?, advantage: one("advantage")?, atoms: count }
            }
            "expected" => Self::Expected(dense("support")?),
            "mean" => Self::Mean,
            "first_half" => Self::FirstHalf,
            "mode" => {
                let parts = node.get("parts")?.list()?;
                let parts = parts.iter().map(Part::read).collect::<Result<_>>()?;
                Self::Mode { parts, plain: node.get("plain")?.flag()? }
            }
            _ => return kind.expected("a kind of layer that this crate knows"),
        })
    }

    /// Numbers that the layers inside remember of an episode.
    pub(crate) fn memory_size(&self) -> usize {
        let sum = |layers: &[Layer]| layers.iter().map(Layer::memory_size).sum();
        match self {
            Self::Chain(layers) | Self::Beside(layers) => sum(layers),
            Self::Join(leaves) => leaves.iter().map(|(_, layer)| layer.memory_size()).sum(),
            Self::Dueling { value, advantage, .. } => value.memory_size() + advantage.memory_size(),
            Self::Memory(recurrent) => recurrent.state_size(),
            Self::WorldModel(model) => model.sizes.iter().sum(),
            _ => 0,
        }
    }

    /// The largest number of what layers allocate without having an array of that size.
    pub(crate) fn asks_for(&self) -> usize {
        let most = |layers: &[Layer]| layers.iter().map(Layer::asks_for).max().unwrap_or(0);
        match self {
            Self::Chain(layers) | Self::Beside(layers) => most(layers),
            Self::Join(leaves) => {
                leaves.iter().map(|(_, layer)| layer.asks_for()).max().unwrap_or(0)
            }
            Self::Dueling { value, advantage, .. } => value.asks_for().max(advantage.asks_for()),
            Self::OneHot { size, .. } => *size,
            Self::Pad(sides) => sides.iter().sum::<usize>().saturating_pow(2),
            Self::WorldModel(model) => model.asks_for(),
            _ => 0,
        }
    }

    /// Return what the layer makes of its input, for each of B rows.
    pub(crate) fn compute(&self, input: Input, step: &mut Step<'_>) -> Result<Array> {
        let x = match (self, input) {
            (Self::Chain(layers), input) => return chain(layers, input, step),
            (Self::Join(leaves), Input::Leaves(mut found)) => {
                let mut parts = Vec::with_capacity(leaves.len());
                for (name, layer) in leaves {
                    let Some(leaf) = found.remove(name) else {
                        return damaged(format!(
                            "its network sees a leaf '{name}', which is not there"
                        ));
                    };
                    parts.push(layer.compute(Input::Array(leaf), step)?);
                }
                return joined(&parts, step);
            }
            (Self::Beside(layers), input) => {
                let mut parts = Vec::with_capacity(layers.len());
                let mut sum = 0;
                for layer in layers {
                    let part = layer.compute(input.clone(), step)?;
                    sum = step.room(part.width().checked_add(sum))?;
                    parts.push(part);
                }
                return joined(&parts, step);
            }
            (_, Input::Array(x)) if !x.shape().is_empty() => x,
            _ => return damaged("a layer is given leaves or one array where it takes the other"),
        };
        Ok(match self {
            Self::Chain(_) | Self::Join(_) | Self::Beside(_) | Self::OfAgent(_) => {
                return damaged("a layer of leaves is given one array");
            }
            Self::Flatten(by) => x.flat().map32(|x| x / round32(*by)),
            Self::OneHot { first, size } => one_hot(x, first, *size, step)?,
            Self::Image { channels_first, divide_by } => image(x, *channels_first, *divide_by)?,
            Self::Pad(sides) => pad(&x, *sides, step)?,
            Self::Convolution { weight, bias, stride } => {
                convolution(&x, weight, bias, *stride, step)?
            }
            Self::MaxPool(size) => max_pool(&x, *size)?,
            Self::Linear { weight, bias } => linear(&x, weight, bias)?,
            Self::BlockLinear { weight, bias } => block_linear(&x, weight, bias)?,
            Self::Activation(function) => x.map32(function),
            Self::RmsNorm { weight, eps, axis } => rms_norm(x, weight, *eps, *axis)?,
            Self::Normalize { mean, std } => {
                x.zip(mean, |x, mean| round32(x - mean))?.zip(std, |x, std| round32(x / std))?
            }
            Self::Affine { scale, shift } => {
                x.zip(scale, |x, by| x * by)?.zip(shift, |x, by| x + by)?
            }
            Self::Memory(recurrent) => recurrent.compute(&x, step)?,
            Self::WorldModel(model) => model.compute(x, step)?,
            Self::MostProbable(sizes) => most_probable(&x, sizes)?,
            Self::Atoms(count) => {
                let (rows, width) = (x.rows(), x.width());
                x.reshaped(vec![rows, width / count, *count])?
            }
            Self::Dueling { value, advantage, atoms } => {
                let value = value.compute(Input::Array(x.clone()), step)?;
                dueling(&value, advantage.compute(Input::Array(x), step)?, *atoms)?
            }
            Self::Expected(support) => expected(&x, support)?,
            Self::Mean => mean(&x),
            Self::FirstHalf => columns(&x, 0, x.dims::<2>("columns to halve")?[1] / 2)?,
            Self::Mode { parts, plain } => mode(&x, parts, *plain, step.masks)?,
        })
    }
}

impl Input {
    /// Observations; those of a space that is not nested are one array.
    pub(crate) fn of(mut obs: Leaves, agent: Option<f64>) -> Self {
        let input = match obs.remove("") {
            Some(leaf) if obs.is_empty() => Self::Array(leaf),
            _ => Self::Leaves(obs),
        };
        match agent {
            Some(number) => Self::Leaves(of_agent(input, number)),
            None => input,
        }
    }
}

fn chain(layers: &[Layer], mut input: Input, step: &mut Step<'_>) -> Result<Array> {
    for layer in layers {
        input = match (layer, input) {
            (Layer::OfAgent(number), input) => Input::Leaves(of_agent(input, *number)),
            (_, input) => Input::Array(layer.compute(input, step)?),
        };
    }
    match input {
        Input::Array(x) => Ok(x),
        Input::Leaves(_) => damaged("a chain of layers makes leaves"),
    }
}

/// Leaves `obs` or `obs.<leaf>`, and a leaf `agent` of (B,) equal numbers.
fn of_agent(input: Input, number: f64) -> Leaves {
    let mut leaves: Leaves = match input {
        Input::Array(x) => Leaves::from([("obs".to_owned(), x)]),
        Input::Leaves(leaves) => {
            leaves.into_iter().map(|(name, leaf)| (format!("obs.{name}"), leaf)).collect()
        }
    };
    let rows = leaves.values().next().map_or(0, Array::rows);
    leaves.insert("agent".to_owned(), Array::of(vec![rows], vec![number; rows]));
    leaves
}

fn joined(parts: &[Array], step: &Step<'_>) -> Result<Array> {
    let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.width()));
    step.room(sum)?;
    side_by_side(parts)
}

pub(crate) fn positive(node: &Node<'_>) -> Result<usize> {
    match node.size()? {
        0 => node.expected("at least 1"),
        size => Ok(size),
    }
}
