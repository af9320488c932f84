//! The header of a policy file: JSON whose arrays are tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::array::{Array, count};
use crate::error::{Result, damaged};

/// Arrays by name, each decoded once however often the header names it.
pub(crate) type Tensors = BTreeMap<String, Arc<Array>>;

/// One value of the header, and where it is.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    tensors: &'a Tensors,
    path: String,
}

impl<'a> Node<'a> {
    pub(crate) fn new(value: &'a Value, tensors: &'a Tensors) -> Self {
        Self { value, tensors, path: "header".to_owned() }
    }

    fn child(&self, value: &'a Value, key: impl std::fmt::Display) -> Self {
        Self { value, tensors: self.tensors, path: format!("{}.{key}", self.path) }
    }

    /// The error that it is something else.
    pub(crate) fn expected<T>(&self, what: &str) -> Result<T> {
        let mut got = self.value.to_string();
        if got.len() > 40 {
            got = got.chars().take(40).chain("...".chars()).collect();
        }
        damaged(format!("{} must be {what}, got {got}", self.path))
    }

    /// The value of a key, if it has that.
    pub(crate) fn find(&self, key: &str) -> Option<Self> {
        self.value.get(key).map(|value| self.child(value, key))
    }

    pub(crate) fn get(&self, key: &str) -> Result<Self> {
        match self.find(key) {
            Some(found) => Ok(found),
            None => damaged(format!("{} has no '{key}'", self.path)),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub(crate) fn text(&self) -> Result<&'a str> {
        self.value.as_str().map_or_else(|| self.expected("text"), Ok)
    }

    pub(crate) fn flag(&self) -> Result<bool> {
        self.value.as_bool().map_or_else(|| self.expected("true or false"), Ok)
    }

    pub(crate) fn whole(&self) -> Result<i64> {
        self.value.as_i64().map_or_else(|| self.expected("a whole number"), Ok)
    }

    pub(crate) fn number(&self) -> Result<f64> {
        self.value.as_f64().map_or_else(|| self.expected("a number"), Ok)
    }

    pub(crate) fn size(&self) -> Result<usize> {
        let size = self.value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.map_or_else(|| self.expected("a size"), Ok)
    }

    pub(crate) fn list(&self) -> Result<Vec<Self>> {
        let Some(values) = self.value.as_array() else {
            return self.expected("a list");
        };
        Ok(values.iter().enumerate().map(|(i, value)| self.child(value, i)).collect())
    }

    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, Self)>> {
        let Some(values) = self.value.as_object() else {
            return self.expected("a dict");
        };
        Ok(values.iter().map(|(key, value)| (key.as_str(), self.child(value, key))).collect())
    }

    pub(crate) fn pair(&self) -> Result<[Self; 2]> {
        <[Self; 2]>::try_from(self.list()?).or_else(|_| self.expected("a pair"))
    }

    pub(crate) fn sizes(&self) -> Result<Vec<usize>> {
        let sizes: Vec<usize> = self.list()?.iter().map(Self::size).collect::<Result<_>>()?;
        if sizes.iter().try_fold(0_usize, |n, size| n.checked_add(*size)).is_none() {
            return self.expected("sizes that can be added");
        }
        Ok(sizes)
    }

    /// An array, or a number as one without dimensions.
    pub(crate) fn array(&self) -> Result<Arc<Array>> {
        if let Some(number) = self.value.as_f64() {
            return Ok(Arc::new(Array::of(Vec::new(), vec![number])));
        }
        let name = self.value.get("$tensor").and_then(Value::as_str);
        match name.and_then(|name| self.tensors.get(name)) {
            Some(array) => Ok(Arc::clone(array)),
            None => self.expected("an array of the file"),
        }
    }

    /// An array of D dimensions.
    pub(crate) fn array_of<const D: usize>(&self) -> Result<Arc<Array>> {
        let array = self.array()?;
        array.dims::<D>(&self.path)?;
        Ok(array)
    }

    /// An array of so many numbers in one dimension.
    pub(crate) fn vector(&self, size: Option<usize>) -> Result<Arc<Array>> {
        let array = self.array()?;
        if size.is_none() || array.shape() != [size.unwrap_or(0)] {
            return damaged(format!(
                "{} has shape {:?}, expected {size:?}",
                self.path,
                array.shape()
            ));
        }
        Ok(array)
    }

    /// A shape whose numbers a computer can count.
    pub(crate) fn shape(&self) -> Result<Vec<usize>> {
        let shape = self.sizes()?;
        if count(&shape).is_none() { self.expected("a shape") } else { Ok(shape) }
    }
}
