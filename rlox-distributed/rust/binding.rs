//! Python bindings of the streams of both ends.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tonic::Status;

use crate::client::{Stream, Target, shared_driver};
use crate::driver::Driver;
use crate::grpc;
use crate::server::{Keepalive, Server, Service, Session};
use crate::tls::Files;

create_exception!(
    _transport,
    StreamError,
    PyException,
    "A stream broke or was refused; ``args`` are gRPC's name of the status and a description."
);

/// The longest wait; more counts as endless.
const MOST_SECONDS: f64 = 1e9;
/// Time between checks for signals.
const LOOK: Duration = Duration::from_millis(100);

#[expect(clippy::needless_pass_by_value, reason = "its signature is that of `map_err`")]
pub(crate) fn raised(status: Status) -> PyErr {
    StreamError::new_err((grpc::name(status.code()), status.message().to_owned()))
}

fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, MOST_SECONDS) })
}

fn keepalive(every: f64, patience: f64) -> Keepalive {
    Keepalive { every: duration(every), patience: duration(patience) }
}

/// Wait without the GIL until a future is ready; raise exceptions of signal handlers.
fn wait<F>(py: Python<'_>, driver: &Driver, seconds: f64, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let end = Instant::now() + duration(seconds);
    let mut future = pin!(future);
    loop {
        let look = end.min(Instant::now() + LOOK);
        if let Some(output) = py.detach(|| driver.wait_until(look, future.as_mut())) {
            return Ok(output);
        }
        if look == end {
            return Err(PyTimeoutError::new_err(format!("not done in {seconds} s")));
        }
        py.check_signals()?;
    }
}

fn to_python(py: Python<'_>, message: Option<Bytes>) -> Option<Bound<'_, PyBytes>> {
    message.map(|bytes| PyBytes::new(py, &bytes))
}

/// A learner's stream to a worker, on its own connection.
#[pyclass(name = "ClientStream", module = "rlox_distributed._transport", frozen)]
pub(crate) struct PyClientStream(Arc<Stream>);

#[pymethods]
impl PyClientStream {
    #[new]
    #[pyo3(signature = (
        address, *, largest, seconds, token=None, ca=None, cert=None, key=None,
        ping_every=10.0, ping_patience=5.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        address: String,
        largest: usize,
        seconds: f64,
        token: Option<String>,
        ca: Option<Vec<u8>>,
        cert: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        ping_every: f64,
        ping_patience: f64,
    ) -> PyResult<Self> {
        let keepalive = keepalive(ping_every, ping_patience);
        let tls = Files { ca, cert, key }.client().map_err(PyValueError::new_err)?;
        let target = Target { address, token, tls, largest, keepalive };
        let driver = shared_driver()?;
        let opened = wait(py, &driver, seconds, Stream::open(driver.clone(), &target))?;
        Ok(Self(Arc::new(opened.map_err(raised)?)))
    }

    fn send(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        let data = Bytes::copy_from_slice(data);
        py.detach(|| self.0.driver().wait(self.0.send(Some(data)))).map_err(raised)
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.driver().wait(self.0.send(None))).map_err(raised)
    }

    fn receive<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = wait(py, self.0.driver(), seconds, self.0.receive())?;
        Ok(to_python(py, message.map_err(raised)?))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// A worker's side of a stream.
#[pyclass(name = "ServerStream", module = "rlox_distributed._transport", frozen)]
pub(crate) struct PyServerStream(Mutex<Option<Session>>);

impl PyServerStream {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Session) -> Result<T, Status> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            session.as_mut().map_or_else(|| Err(Status::cancelled("the stream is over")), call)
        })
        .map_err(raised)
    }
}

#[pymethods]
impl PyServerStream {
    fn receive<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = self.with(py, |session| session.receive(duration(seconds)))?;
        Ok(to_python(py, message))
    }

    fn exchange<'py>(
        &self,
        py: Python<'py>,
        answer: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let answer = Bytes::copy_from_slice(answer);
        let message = self.with(py, |session| session.exchange(answer))?;
        Ok(to_python(py, message))
    }

    #[staticmethod]
    fn abort(code: &str, details: &str) -> PyResult<()> {
        Err(raised(grpc::status(code, details)))
    }
}

/// A worker with a Python function that handles streams.
#[pyclass(name = "Server", module = "rlox_distributed._transport", frozen)]
pub(crate) struct PyServer(Server);

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (
        address, handler, *, largest, most_streams, token=None, ca=None, cert=None,
        key=None, ping_every=10.0, ping_patience=5.0, unused=30.0
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        handler: Py<PyAny>,
        largest: usize,
        most_streams: u32,
        token: Option<String>,
        ca: Option<Vec<u8>>,
        cert: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        ping_every: f64,
        ping_patience: f64,
        unused: f64,
    ) -> PyResult<Self> {
        let tls = Files { ca, cert, key }.server().map_err(PyValueError::new_err)?;
        let served = Service {
            token,
            tls,
            largest,
            most_sessions: most_streams,
            keepalive: keepalive(ping_every, ping_patience),
            unused: duration(unused),
            handle: Box::new(move |session| handle(&handler, session)),
        };
        let bound = py.detach(|| Server::bind(address, served));
        Ok(Self(bound.map_err(|error| PyOSError::new_err(error.to_string()))?))
    }

    #[getter]
    fn port(&self) -> u16 {
        self.0.port
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.0.start())?)
    }

    fn stop(&self, py: Python<'_>, grace: f64) {
        py.detach(|| self.0.stop(duration(grace)));
    }
}

/// Let Python answer a stream, and end it like the handler: a return is a clean end.
fn handle(handler: &Py<PyAny>, session: Session) {
    // fails while the interpreter is shutting down
    let _ = Python::try_attach(|py| -> PyResult<()> {
        let stream = Bound::new(py, PyServerStream(Mutex::new(Some(session))))?;
        let status = match handler.call1(py, (&stream,)) {
            Ok(_) => Status::ok(""),
            Err(error) => status_of(py, error),
        };
        let session = stream.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = session {
            py.detach(|| session.finish(status));
        }
        Ok(())
    });
}

fn status_of(py: Python<'_>, error: PyErr) -> Status {
    if error.is_instance_of::<StreamError>(py)
        && let Ok((code, details)) =
            error.value(py).getattr("args").and_then(|args| args.extract::<(String, String)>())
    {
        return grpc::status(&code, &details);
    }
    let status = grpc::status("UNKNOWN", &format!("the worker failed: {error}"));
    error.write_unraisable(py, None);
    status
}
