//! Spaces of observations and actions.

use std::sync::Arc;

use crate::array::{Array, Leaves, count, round32};
use crate::error::{Error, Result, argument, damaged};
use crate::tree::Node;

/// A space of gymnasium's.
#[derive(Clone, Debug)]
pub enum Space {
    /// A space that is not nested.
    Leaf(Leaf),
    /// Spaces by key.
    Dict(Vec<(String, Space)>),
    /// Spaces by place.
    Tuple(Vec<Space>),
}

/// A space whose values are one array.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Of one value.
    pub shape: Vec<usize>,
    /// `numpy.dtype.str` of actions, such as `<f4`.
    pub dtype: String,
    nvec: Vec<usize>,
    pub(crate) start: Vec<f64>,
    pub(crate) bounds: Option<[Arc<Array>; 2]>,
    pub(crate) is_binary: bool,
}

impl Space {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self> {
        Ok(match node.get("kind")?.text()? {
            "dict" => {
                let mut spaces = Vec::new();
                for pair in node.get("spaces")?.list()? {
                    let [key, space] = pair.pair()?;
                    spaces.push((key.text()?.to_owned(), Self::read(&space)?));
                }
                spaces.sort_by(|one, other| one.0.cmp(&other.0)); // as gymnasium does
                Self::Dict(spaces)
            }
            "tuple" => {
                let spaces = node.get("spaces")?.list()?;
                Self::Tuple(spaces.iter().map(Self::read).collect::<Result<_>>()?)
            }
            _ => Self::Leaf(Leaf::read(node)?),
        })
    }

    /// Its leaves and their names, in order.
    #[must_use]
    pub fn leaves(&self) -> Vec<(String, &Leaf)> {
        let mut found = Vec::new();
        self.walk("", &mut found);
        found
    }

    fn walk<'a>(&'a self, prefix: &str, found: &mut Vec<(String, &'a Leaf)>) {
        match self {
            Self::Leaf(leaf) => found.push((prefix.to_owned(), leaf)),
            Self::Dict(spaces) => {
                for (key, space) in spaces {
                    space.walk(&path(prefix, key), found);
                }
            }
            Self::Tuple(spaces) => {
                for (i, space) in spaces.iter().enumerate() {
                    space.walk(&path(prefix, i), found);
                }
            }
        }
    }

    /// Columns of a mask of its actions: one per choice of each column.
    #[must_use]
    pub fn mask_size(&self) -> usize {
        self.leaves().iter().map(|(_, leaf)| leaf.choices().sum::<usize>()).sum()
    }

    /// Numbers of a value, or an error if leaves share a name or there are too many to count.
    pub(crate) fn numbers(&self) -> Result<usize> {
        let leaves = self.leaves();
        let mut names: Vec<_> = leaves.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != leaves.len() || leaves.is_empty() {
            return damaged("a space has no leaf, or two of one name");
        }
        let each = leaves.iter().map(|(_, leaf)| count(&leaf.shape));
        let sum = each.reduce(|sum, n| sum?.checked_add(n?)).flatten();
        sum.map_or_else(|| damaged("a space has too many numbers"), Ok)
    }

    /// Observations with nothing: 0, or the lowest choice.
    pub(crate) fn blank(&self) -> Leaves {
        let mut blank = Leaves::new();
        for (name, leaf) in self.leaves() {
            let mut array = Array::zeros([&[1], leaf.shape.as_slice()].concat());
            if !leaf.start.is_empty() {
                array.row_mut(0).copy_from_slice(&leaf.start);
            }
            blank.insert(name, array);
        }
        blank
    }

    /// Return observations in the precision they are kept in, and how many there are.
    pub(crate) fn checked(&self, obs: &Leaves) -> Result<(Leaves, usize)> {
        let leaves = self.leaves();
        if obs.len() != leaves.len() {
            let names: Vec<_> = leaves.iter().map(|(name, _)| name).collect();
            let got: Vec<_> = obs.keys().collect();
            return argument(format!("obs has the leaves {got:?}, expected {names:?}"));
        }
        let mut rows = None;
        let mut kept = Leaves::new();
        for (name, leaf) in leaves {
            let Some(array) = obs.get(&name) else {
                return argument(format!(
                    "obs has no leaf '{name}'; pass one for each of the space"
                ));
            };
            let expected = *rows.get_or_insert_with(|| array.rows());
            if array.shape().get(1..) != Some(&leaf.shape) || array.rows() != expected {
                return argument(format!(
                    "leaf '{name}' of obs has shape {:?}, expected ({expected}, then {:?})",
                    array.shape(),
                    leaf.shape
                ));
            }
            kept.insert(name.clone(), leaf.kept(&name, array.clone())?);
        }
        Ok((kept, rows.unwrap_or(0)))
    }

    /// Return B rows of actions as the env takes them.
    pub(crate) fn to_env(&self, rows: &Array) -> Result<Leaves> {
        let leaves = self.leaves();
        let columns: usize = leaves.iter().map(|(_, leaf)| leaf.columns()).sum();
        if rows.width() != columns {
            return damaged(format!("its network returns {} columns, not {columns}", rows.width()));
        }
        let mut at = 0;
        let mut actions = Leaves::new();
        for (name, leaf) in leaves {
            let mut data = Vec::with_capacity(rows.rows() * leaf.columns());
            for i in 0..rows.rows() {
                let own = &rows.row(i)[at..at + leaf.columns()];
                data.extend(own.iter().enumerate().map(|(c, x)| leaf.acted(c, *x)));
            }
            at += leaf.columns();
            let shape = [&[rows.rows()], leaf.shape.as_slice()].concat();
            actions.insert(name, Array::of(shape, data));
        }
        Ok(actions)
    }
}

impl Leaf {
    fn read(node: &Node<'_>) -> Result<Self> {
        let kind = node.get("kind")?;
        let dtype = node.find("dtype").map_or(Ok("<i8"), |dtype| dtype.text())?.to_owned();
        let blank = Self {
            shape: Vec::new(),
            dtype,
            nvec: Vec::new(),
            start: Vec::new(),
            bounds: None,
            is_binary: false,
        };
        Ok(match kind.text()? {
            "box" => {
                let [low, high] = [node.get("low")?.array()?, node.get("high")?.array()?];
                if low.shape() != high.shape() {
                    return damaged("the bounds of a box have two shapes");
                }
                let shape = low.shape().to_vec();
                Self { shape, bounds: Some([low, high]), ..blank }
            }
            "discrete" => {
                let start = Array::of(vec![], vec![whole(node.get("start")?.whole()?)?]);
                Self {
                    nvec: vec![places(whole(node.get("n")?.whole()?)?)?],
                    start: start.into_data(),
                    ..blank
                }
            }
            "multi_discrete" => {
                let [n, start] = [node.get("nvec")?.array()?, node.get("start")?.array()?];
                if n.shape() != start.shape() {
                    return damaged("nvec and start have two shapes");
                }
                let nvec = n.data().iter().map(|n| places(*n)).collect::<Result<_>>()?;
                let (shape, start) = (n.shape().to_vec(), start.data().to_vec());
                Self { shape, nvec, start, ..blank }
            }
            "multi_binary" => {
                let shape = node.get("shape")?.shape()?;
                Self { shape, is_binary: true, dtype: "|i1".to_owned(), ..blank }
            }
            _ => return kind.expected("a kind of space"),
        })
    }

    /// For each column of an action the number of its choices: 2 of a `MultiBinary`, none of a `Box`.
    pub fn choices(&self) -> impl Iterator<Item = usize> {
        let binary = if self.is_binary { self.columns() } else { 0 };
        self.nvec.iter().copied().chain(std::iter::repeat_n(2, binary))
    }

    /// Columns of an action.
    pub(crate) fn columns(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether its actions are whole numbers.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.dtype.as_bytes().get(1), Some(b'i' | b'u'))
    }

    /// Whether observations are kept as whole numbers.
    fn keeps_whole(&self) -> bool {
        self.bounds.as_ref().is_none_or(|_| self.dtype == "|u1") && !self.is_binary
    }

    fn kept(&self, name: &str, array: Array) -> Result<Array> {
        if !self.keeps_whole() {
            return Ok(array.map32(|x| x));
        }
        let top = if self.dtype == "|u1" { 255.0 } else { 2_f64.powi(53) };
        let fits =
            |x: &f64| x.fract() == 0.0 && *x <= top && *x >= if top == 255.0 { 0.0 } else { -top };
        if let Some(x) = array.data().iter().find(|x| !fits(x)) {
            return argument(format!(
                "leaf '{name}' of obs holds {x}, expected whole numbers up to {top}; round them"
            ));
        }
        Ok(array)
    }

    /// The number of a column as the env takes it.
    fn acted(&self, column: usize, x: f64) -> f64 {
        let Some([low, high]) = &self.bounds else {
            return x.trunc() + self.start.get(column).unwrap_or(&0.0);
        };
        let x = if self.is_whole() { x.round_ties_even() } else { x };
        let (low, high) = (low.data()[column], high.data()[column]);
        // not clamp, which panics at bounds in the wrong order
        let x = if x < low { low } else { x };
        let x = if x > high { high } else { x };
        match &self.dtype.as_bytes()[1..] {
            b"f4" => round32(x),
            b"f2" => half::f16::from_f64(x).to_f64(),
            b"b1" => f64::from(u8::from(x != 0.0)),
            _ => x,
        }
    }
}

fn path(prefix: &str, key: impl std::fmt::Display) -> String {
    if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") }
}

/// A whole number that `f64` holds.
#[allow(clippy::cast_precision_loss)] // refused above
fn whole(x: i64) -> Result<f64> {
    if x.unsigned_abs() > 1 << 53 {
        return Err(Error::Damaged(format!("the number {x} is larger than 2^53")));
    }
    Ok(x as f64)
}

/// A number of choices.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // refused above
fn places(n: f64) -> Result<usize> {
    if !(1.0..=2_f64.powi(31)).contains(&n) {
        return damaged(format!("a column has {n} choices"));
    }
    Ok(n as usize)
}
