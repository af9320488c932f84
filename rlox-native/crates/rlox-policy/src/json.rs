//! Observations and actions as JSON.

use serde_json::{Map, Number, Value};

use crate::array::{Array, Leaves};
use crate::error::{Result, argument};
use crate::space::{Leaf, Space};

impl Space {
    /// Return B values of the space that JSON holds: nested lists of numbers for a leaf, objects for
    /// a `Dict` and lists for a `Tuple`, around the batches of their leaves.
    ///
    /// # Errors
    /// [`crate::Error::Argument`]: it is nested otherwise, or a list has rows of several lengths.
    pub fn from_json(&self, value: &Value) -> Result<Leaves> {
        let mut leaves = Leaves::new();
        self.collect(value, "", &mut leaves)?;
        Ok(leaves)
    }

    fn collect(&self, value: &Value, prefix: &str, leaves: &mut Leaves) -> Result<()> {
        let path = |key: &dyn std::fmt::Display| match prefix {
            "" => key.to_string(),
            _ => format!("{prefix}.{key}"),
        };
        match self {
            Self::Leaf(leaf) => {
                leaves.insert(prefix.to_owned(), numbers(leaf, value, prefix)?);
            }
            Self::Dict(spaces) => {
                for (key, space) in spaces {
                    let Some(part) = value.get(key) else {
                        return argument(format!("the observation has no key '{}'", path(key)));
                    };
                    space.collect(part, &path(key), leaves)?;
                }
            }
            Self::Tuple(spaces) => {
                for (i, space) in spaces.iter().enumerate() {
                    let Some(part) = value.get(i) else {
                        return argument(format!("the observation has no part '{}'", path(&i)));
                    };
                    space.collect(part, &path(&i), leaves)?;
                }
            }
        }
        Ok(())
    }

    /// Return values of the space as JSON, nested as [`Space::from_json`] takes them; a number that
    /// JSON lacks is `null`.
    #[must_use]
    pub fn to_json(&self, leaves: &Leaves) -> Value {
        self.json(leaves, "")
    }

    fn json(&self, leaves: &Leaves, prefix: &str) -> Value {
        let path = |key: &dyn std::fmt::Display| match prefix {
            "" => key.to_string(),
            _ => format!("{prefix}.{key}"),
        };
        match self {
            Self::Leaf(leaf) => leaves
                .get(prefix)
                .map_or(Value::Null, |array| nested(array.shape(), array.data(), leaf.is_whole())),
            Self::Dict(spaces) => {
                let parts = spaces.iter().map(|(key, s)| (key.clone(), s.json(leaves, &path(key))));
                Value::Object(parts.collect::<Map<_, _>>())
            }
            Self::Tuple(spaces) => {
                spaces.iter().enumerate().map(|(i, s)| s.json(leaves, &path(&i))).collect()
            }
        }
    }
}

fn numbers(leaf: &Leaf, value: &Value, name: &str) -> Result<Array> {
    let rows = value.as_array().map_or(0, Vec::len);
    let shape = [&[rows], leaf.shape.as_slice()].concat();
    let mut data = Vec::new();
    if !flatten(value, &shape, &mut data) {
        return argument(format!(
            "the leaf '{name}' of an observation must be nested lists of numbers of shape (B, then \
             {:?})",
            leaf.shape
        ));
    }
    Array::new(shape, data)
}

fn flatten(value: &Value, shape: &[usize], data: &mut Vec<f64>) -> bool {
    let Some((size, inner)) = shape.split_first() else {
        let number = value.as_f64().or_else(|| value.as_bool().map(|x| f64::from(u8::from(x))));
        data.extend(number);
        return number.is_some();
    };
    let parts = value.as_array().filter(|parts| parts.len() == *size);
    parts.is_some_and(|parts| parts.iter().all(|part| flatten(part, inner, data)))
}

#[allow(clippy::cast_possible_truncation)] // of whole numbers
fn nested(shape: &[usize], data: &[f64], is_whole: bool) -> Value {
    let Some((size, inner)) = shape.split_first() else {
        return match data.first() {
            Some(x) if is_whole => Value::from(*x as i64),
            Some(x) => Number::from_f64(*x).map_or(Value::Null, Value::Number),
            None => Value::Null,
        };
    };
    let width: usize = inner.iter().product();
    (0..*size).map(|i| nested(inner, &data[i * width..(i + 1) * width], is_whole)).collect()
}
