//! gRPC streams of bytes between learners and env workers, over HTTP/2.
//!
//! Who has a session and what is done once is Python's; here are sockets, TLS, tokens, bounds,
//! deadlines, keepalive, the health service, the drain, and the messages that hold arrays.
//!
//! - [`driver`]: whoever waits for a message runs the sockets meanwhile.
//! - [`messages`], [`status`]: gRPC's frames and the statuses of streams.
//! - [`socket`], [`tls`], [`keepalive`]: connections.
//! - [`client`]: a learner's stream.
//! - [`server`], [`session`], [`strangers`], [`health`]: a worker's.
//! - [`wire`], [`steps`], `arrays`, `codec`: steps between arrays and protobuf's messages.
//! - `binding`: the streams from Python.

pub mod client;
pub mod driver;
pub mod health;
pub mod keepalive;
pub mod messages;
pub mod server;
pub mod session;
pub mod socket;
pub mod status;
pub mod steps;
pub mod strangers;
pub mod tls;
pub mod wire;

mod arrays;
mod binding;
mod codec;

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
