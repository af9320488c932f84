//! A learner's end: one stream on a connection of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{self, ResponseFuture, SendRequest};
use http::{HeaderValue, Request, StatusCode, header};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::rustls::ClientConfig;

use crate::driver::{Driver, settle, take_turns};
use crate::keepalive::Keepalive;
use crate::messages::{Messages, framed};
use crate::socket::connect;
use crate::status::{Result, Status};

/// Between turns while no learner's thread waits; half a second of the five that a ping may take.
const REST: Duration = Duration::from_millis(500);
/// Bytes that may come before they are read: of a stream and of a connection.
const WINDOW: u32 = 4 << 20;
const FRAME: u32 = 1 << 20;
const HEADERS: u32 = 16 << 10;

/// Where to, with what.
pub struct Target {
    /// `host:port` or `unix:path`.
    pub address: String,
    /// `/service/method`.
    pub path: String,
    /// Sent as `authorization: Bearer`.
    pub token: Option<String>,
    /// `None`: without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Bytes of the largest message that is taken.
    pub largest: usize,
    /// Of the connection.
    pub keepalive: Keepalive,
}

/// A stream; what waits on it is one thread at a time, and any thread may close it.
pub struct Stream {
    driver: Arc<Driver>,
    sending: Mutex<SendStream<Bytes>>,
    receiving: tokio::sync::Mutex<Receiving>,
    closed: Notify,
    connection: AbortHandle,
    // the connection ends in good order once all of these have gone
    request: Mutex<Option<SendRequest<Bytes>>>,
}

enum Receiving {
    Awaited(ResponseFuture, usize),
    Open(Messages),
    Over(Status),
}

impl Stream {
    /// Connect and begin the stream; the answer's headers are not waited for.
    ///
    /// # Errors
    /// The other side cannot be reached, or does not speak HTTP/2.
    pub async fn open(driver: Arc<Driver>, target: &Target) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
        let socket =
            connect(&target.address, target.tls.clone()).await.map_err(|error| failed(&error))?;
        let (request, mut connection) = client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .max_header_list_size(HEADERS)
            .enable_push(false)
            .handshake::<_, Bytes>(socket)
            .await?;
        let silence = target.keepalive.silence(connection.ping_pong());
        let task = tokio::spawn(async move {
            tokio::select! {
                _ = connection => {}
                () = silence => {}
            }
        });
        let mut request = request.ready().await?;
        let (response, sending) = request.send_request(headers(target)?, false)?;
        Ok(Self {
            driver,
            sending: Mutex::new(sending),
            receiving: tokio::sync::Mutex::new(Receiving::Awaited(response, target.largest)),
            closed: Notify::new(),
            connection: task.abort_handle(),
            request: Mutex::new(Some(request)),
        })
    }

    /// Return who runs the tasks of the connection.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Send a message, or the end after the last one.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&self, message: Option<&[u8]>) -> Result<()> {
        let data = message.map_or(Ok(Bytes::new()), framed)?;
        let sent = {
            let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            sending.send_data(data, message.is_none())
        };
        settle().await;
        Ok(sent?)
    }

    /// Return the next message, or `None` where the other side ended the stream in good order.
    ///
    /// # Errors
    /// The stream broke, or the other side ended it with a status.
    pub async fn receive(&self) -> Result<Option<Bytes>> {
        tokio::select! {
            biased;
            () = self.closed.notified() => {
                self.closed.notify_one();  // for all who come later
                Err(Status::cancelled())
            }
            received = async { self.receiving.lock().await.next().await } => received,
        }
    }

    fn reset(&self) {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        sending.send_reset(h2::Reason::CANCEL);
    }

    /// Break the stream off.
    pub fn close(&self) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        let open = request.is_some();
        drop(request);
        if open {
            self.reset(); // first, so that whoever stops to wait can send no more
        }
        self.closed.notify_one();
        if open {
            self.driver.wait(async {
                settle().await;
                self.connection.abort();
                settle().await;
            });
        }
    }
}

impl Receiving {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Self::Over(status) = self {
            return Err(status.clone());
        }
        let next = self.next_unless_over().await;
        if let Err(status) = &next {
            *self = Self::Over(status.clone());
        }
        next
    }

    async fn next_unless_over(&mut self) -> Result<Option<Bytes>> {
        if let Self::Awaited(response, largest) = self {
            let (head, body) = response.await?.into_parts();
            if let Some(status) = Status::from_headers(&head.headers) {
                return ended(status);
            }
            if head.status != StatusCode::OK {
                return Err(Status::from_http(head.status));
            }
            let kind = head.headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
            if !kind.starts_with(b"application/grpc") {
                return Err(Status::named("UNKNOWN", "the answer is none of gRPC"));
            }
            *self = Self::Open(Messages::new(body, *largest));
        }
        let Self::Open(messages) = self else { return Err(Status::cancelled()) };
        if let Some(message) = messages.next().await? {
            return Ok(Some(message));
        }
        let trailers = messages.trailers().await?.unwrap_or_default();
        ended(Status::from_headers(&trailers).unwrap_or_else(|| {
            Status::named("INTERNAL", "the other side ended the stream without a status")
        }))
    }
}

fn ended(status: Status) -> Result<Option<Bytes>> {
    if status.code == "OK" { Ok(None) } else { Err(status) }
}

fn headers(target: &Target) -> Result<Request<()>> {
    let scheme = if target.tls.is_some() { "https" } else { "http" };
    let host = if target.address.starts_with("unix:") { "localhost" } else { &target.address };
    let invalid = |error: http::Error| Status::named("INVALID_ARGUMENT", error.to_string());
    let mut request = Request::post(format!("{scheme}://{host}{}", target.path))
        .header("content-type", "application/grpc")
        .header(header::TE, "trailers")
        .header("user-agent", concat!("rlox-transport/", env!("CARGO_PKG_VERSION")))
        .body(())
        .map_err(invalid)?;
    if let Some(token) = &target.token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Status::named("INVALID_ARGUMENT", "the token is no line of ASCII"))?;
        value.set_sensitive(true); // kept out of tables of HPACK and of logs
        request.headers_mut().insert("authorization", value);
    }
    Ok(request)
}

/// Return the driver of all streams of this process; a fork has its own.
///
/// # Errors
/// The system has no more files or threads.
pub fn shared_driver() -> std::io::Result<Arc<Driver>> {
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
    driver.look_regularly();
    let number = TURNS.fetch_add(1, Ordering::Relaxed) + 1;
    take_turns(driver.clone(), REST, move |_| TURNS.load(Ordering::Relaxed) == number)?;
    // the parent's streams are the parent's: dropping its driver here would close nothing of them,
    // but its locks are as they were at the fork
    if let Some(parents) = kept.replace((process, driver.clone())) {
        std::mem::forget(parents);
    }
    Ok(driver)
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
