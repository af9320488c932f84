//! Policy files: safetensors whose metadata hold JSON. Nothing in them is code.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use crate::array::Array;
use crate::error::{Error, Result, damaged};
use crate::seal::is_intact;
use crate::tree::{Node, Tensors};

const NEWEST: u64 = 2;

/// What a file holds: of one policy under `policy`, of several agents under `team`.
pub(crate) struct Content {
    header: Value,
    tensors: Tensors,
}

impl Content {
    pub(crate) fn root(&self) -> Node<'_> {
        Node::new(&self.header, &self.tensors)
    }

    /// How many numbers its arrays hold.
    pub(crate) fn numbers(&self) -> usize {
        self.tensors.values().map(|array| array.data().len()).sum()
    }
}

/// The bytes of a regular file; a named pipe is not waited for.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is no regular file")));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut file| file.read_to_end(&mut content))
        .map_err(unreadable)?;
    Ok(content)
}

/// Read the header and the arrays of an intact file of a known version.
pub(crate) fn read(content: &[u8]) -> Result<Content> {
    if !is_intact(content) {
        return damaged("its digest is missing or does not fit");
    }
    let misfit = |error: safetensors::SafeTensorError| Error::Damaged(error.to_string());
    let (_, metadata) = SafeTensors::read_metadata(content).map_err(misfit)?;
    let Some(text) = metadata.metadata().as_ref().and_then(|texts| texts.get("rlox_policy")) else {
        return damaged("its metadata have no 'rlox_policy'");
    };
    let header: Value = serde_json::from_str(text).map_err(|e| Error::Damaged(e.to_string()))?;
    let version = header.get("format_version");
    if !version.and_then(Value::as_u64).is_some_and(|version| (1..=NEWEST).contains(&version)) {
        let got = version.map_or("none".to_owned(), Value::to_string);
        return Err(Error::TooNew { got, newest: NEWEST });
    }
    let mut tensors = Tensors::new();
    let held = SafeTensors::deserialize(content).map_err(misfit)?;
    for (name, view) in held.iter() {
        tensors.insert(name.to_owned(), Arc::new(array(name, &view)?));
    }
    Ok(Content { header, tensors })
}

/// The numbers of a tensor.
#[allow(clippy::cast_precision_loss)] // of whole numbers, which are refused above 2^53
fn array(name: &str, view: &TensorView<'_>) -> Result<Array> {
    fn numbers<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        let whole = bytes.chunks_exact(N).filter_map(|each| each.try_into().ok());
        whole.map(read).collect()
    }
    let bytes = view.data();
    let data = match view.dtype() {
        Dtype::BOOL | Dtype::U8 => bytes.iter().map(|x| f64::from(*x)).collect(),
        Dtype::I8 => numbers(bytes, |x| f64::from(i8::from_le_bytes(x))),
        Dtype::I16 => numbers(bytes, |x| f64::from(i16::from_le_bytes(x))),
        Dtype::U16 => numbers(bytes, |x| f64::from(u16::from_le_bytes(x))),
        Dtype::I32 => numbers(bytes, |x| f64::from(i32::from_le_bytes(x))),
        Dtype::U32 => numbers(bytes, |x| f64::from(u32::from_le_bytes(x))),
        Dtype::I64 => numbers(bytes, |x| i64::from_le_bytes(x) as f64),
        Dtype::U64 => numbers(bytes, |x| u64::from_le_bytes(x) as f64),
        Dtype::F16 => numbers(bytes, |x| half::f16::from_le_bytes(x).to_f64()),
        Dtype::F32 => numbers(bytes, |x| f64::from(f32::from_le_bytes(x))),
        Dtype::F64 => numbers(bytes, f64::from_le_bytes),
        other => {
            return damaged(format!("tensor '{name}' has dtype {other:?}, expected real numbers"));
        }
    };
    Array::new(view.shape().to_vec(), data)
}
