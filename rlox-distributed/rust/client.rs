//! A learner's end: one stream on its own connection.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, yield_now};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Endpoint, Uri};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use crate::driver::{Driver, take_turns};
use crate::protocol::env_worker_client::EnvWorkerClient;
use crate::server::Keepalive;
use crate::socket::{Closable, connect};
use crate::tls::ClientTls;

/// Time between turns while no learner's thread waits, of the 5 s that a ping may take.
const REST: Duration = Duration::from_millis(500);
/// Flow-control window of a stream and of a connection, in bytes.
const WINDOW: u32 = 4 << 20;
const FRAME: u32 = 1 << 20;
/// Largest size of headers, in bytes.
const HEADERS: u32 = 32 << 10;

/// Address and credentials of a connection.
pub struct Target {
    /// `host:port` or `unix:path`.
    pub address: String,
    /// Token, sent as `authorization: Bearer`.
    pub token: Option<String>,
    /// `None` for no TLS.
    pub tls: Option<ClientTls>,
    /// Bytes of the largest accepted message.
    pub largest: usize,
    /// Keepalive of the connection.
    pub keepalive: Keepalive,
}

/// A stream; one thread at a time may wait on it, and any thread may close it.
pub struct Stream {
    driver: Arc<Driver>,
    requests: Mutex<Option<UnboundedSender<Bytes>>>,
    answers: tokio::sync::Mutex<Answers>,
    closing: AtomicBool,
    closed: CancellationToken,
}

enum Answers {
    Awaited(JoinHandle<Result<Response<Streaming<Bytes>>, Status>>),
    Open(Box<Streaming<Bytes>>),
    Over(Status),
}

impl Stream {
    /// Connect and begin the stream, without waiting for the answer's headers.
    ///
    /// # Errors
    /// The other side cannot be reached.
    pub async fn open(driver: Arc<Driver>, target: &Target) -> Result<Self, Status> {
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        let host = if target.address.starts_with("unix:") { "localhost" } else { &target.address };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
            .map_err(|error| unreachable(&error))?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .http2_max_header_list_size(HEADERS)
            .http2_keep_alive_interval(target.keepalive.every)
            .keep_alive_timeout(target.keepalive.patience)
            .keep_alive_while_idle(true);
        if let Some((config, trusted)) = target.tls.clone() {
            endpoint = endpoint
                .tls_config_with_verifier(config, trusted)
                .map_err(|error| unreachable(&error))?;
        }
        let closed = CancellationToken::new();
        let (address, close) = (target.address.clone(), closed.clone());
        let connector = service_fn(move |_: Uri| {
            let (address, close) = (address.clone(), close.clone());
            async move {
                let socket = connect(&address).await?;
                Ok::<_, io::Error>(TokioIo::new(Closable::new(socket, (), close.cancelled_owned())))
            }
        });
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| unreachable(&error))?;
        let (requests, sent) = unbounded_channel();
        let mut request = Request::new(UnboundedReceiverStream::new(sent));
        if let Some(token) = &target.token {
            let mut value = AsciiMetadataValue::try_from(format!("Bearer {token}"))
                .map_err(|_| Status::invalid_argument("the token is not a line of ASCII"))?;
            value.set_sensitive(true); // kept out of HPACK tables and logs
            request.metadata_mut().insert("authorization", value);
        }
        let mut client = EnvWorkerClient::new(channel).max_decoding_message_size(target.largest);
        let answers = tokio::spawn(async move { client.session(request).await });
        yield_now().await;
        Ok(Self {
            driver,
            requests: Mutex::new(Some(requests)),
            answers: tokio::sync::Mutex::new(Answers::Awaited(answers)),
            closing: AtomicBool::new(false),
            closed,
        })
    }

    /// Return the driver that runs the connection's tasks.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Send a message, or the end after the last one.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&self, message: Option<Bytes>) -> Result<(), Status> {
        let sent = {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            match message {
                Some(message) => requests.as_ref().is_some_and(|to| to.send(message).is_ok()),
                None => requests.take().is_some(),
            }
        };
        yield_now().await; // lets the woken tasks write
        if sent { Ok(()) } else { Err(Status::cancelled("the stream has ended")) }
    }

    /// Return the next message, or `None` if the other side ended the stream cleanly.
    ///
    /// # Errors
    /// The stream broke, or the other side ended it with a status.
    pub async fn receive(&self) -> Result<Option<Bytes>, Status> {
        let received = tokio::select! {
            biased;
            () = self.closed.cancelled() => Ok(None),
            received = async { self.answers.lock().await.next().await } => received,
        };
        match received {
            // the other side may already have answered the end of the requests
            Ok(None) if self.closing.load(Ordering::Relaxed) => {
                Err(Status::cancelled("the stream was closed on this side"))
            }
            received => received,
        }
    }

    /// Break the stream off.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.closed.cancel();
        self.driver.turn();
    }
}

/// Return the root cause of an error, such as the system's or a certificate's.
fn unreachable(error: &tonic::transport::Error) -> Status {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Status::unavailable(cause.to_string())
}

impl Answers {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let next = match self {
            Self::Awaited(call) => match call.await {
                Ok(Ok(response)) => {
                    *self = Self::Open(Box::new(response.into_inner()));
                    return Box::pin(self.next()).await;
                }
                Ok(Err(status)) => Err(status),
                Err(error) => Err(Status::internal(error.to_string())),
            },
            Self::Open(answers) => answers.message().await,
            Self::Over(status) => Err(status.clone()),
        };
        if let Err(status) = &next {
            *self = Self::Over(status.clone());
        }
        next
    }
}

/// Return the driver of all streams of this process; a fork has its own.
///
/// # Errors
/// The system has no more files or threads.
pub fn shared_driver() -> io::Result<Arc<Driver>> {
    static DRIVER: Mutex<Option<(u32, Arc<Driver>)>> = Mutex::new(None);
    static TURNS: AtomicU64 = AtomicU64::new(0);
    let mut kept = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, driver)) = &*kept
        && *owner == process
    {
        return Ok(driver.clone());
    }
    let driver = Driver::new()?;
    let number = TURNS.fetch_add(1, Ordering::Relaxed) + 1;
    take_turns(driver.clone(), REST, move |_| TURNS.load(Ordering::Relaxed) == number)?;
    // the streams belong to the parent: dropping its driver here would not close them, and its
    // locks are in their state at the fork
    if let Some(parents) = kept.replace((process, driver.clone())) {
        std::mem::forget(parents);
    }
    Ok(driver)
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}
