//! gRPC streams between learners and env workers.
//!
//! tonic has HTTP/2, its bounds, keepalive and the health service. Who has a session and what is
//! done once is Python's; here are the token, the limits on strangers, the drain, and the messages
//! that hold arrays.
//!
//! - [`driver`]: whoever waits for a message runs the sockets meanwhile.
//! - [`socket`], [`tls`]: connections.
//! - [`client`]: a learner's stream.
//! - [`server`]: a worker's.
//! - [`grpc`]: messages as bytes.
//! - `arrays`, `codec`: steps between arrays and protobuf's messages.
//! - `binding`: the streams from Python.

pub mod client;
pub mod driver;
pub mod grpc;
pub mod server;
pub mod socket;
pub mod tls;

mod arrays;
mod binding;
mod codec;

/// `workers.proto`, as `build.rs` writes it.
#[allow(
    clippy::pedantic,
    clippy::default_constructed_unit_structs,
    dead_code,
    unreachable_pub,
    reason = "generated"
)]
mod protocol {
    tonic::include_proto!("rlox.distributed.v1");
    tonic::include_proto!("rlox.distributed.v1.EnvWorker");
}

use pyo3::prelude::*;

#[pymodule]
mod _transport {
    #[pymodule_export]
    use super::binding::{PyClientStream, PyServer, PyServerStream, StreamError};
    #[pymodule_export]
    use super::codec::PyStepCodec;

    use super::{Bound, PyModule, PyResult};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
