//! A worker's end: connections, and who may open a stream on them.
//!
//! Strangers are dealt with by tasks alone. A thread is started for a stream once its token is right.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::{self, SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::ServerConfig;

use crate::driver::{Driver, take_turns};
use crate::health;
use crate::keepalive::Keepalive;
use crate::messages::Messages;
use crate::session::Session;
use crate::socket::{Listener, Socket, greet};
use crate::status::Status;
use crate::strangers::{Stranger, Strangers};

/// Connections at a time that have shown no token.
const MOST_STRANGERS: usize = 256;
/// Streams of one connection.
const MOST_STREAMS: u32 = 16;
/// In which TLS and HTTP/2 must have come about.
const GREETING: Duration = Duration::from_secs(10);
/// Between turns while streams have threads, which may be busy with their envs.
const REST: Duration = Duration::from_millis(50);
/// Bytes that may come before they are read.
const WINDOW: u32 = 1 << 20;
const FRAME: u32 = 64 << 10;
const HEADERS: u32 = 16 << 10;

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Phase {
    /// New streams are taken.
    Serving,
    /// Streams end after the request under way.
    Draining,
    /// All connections are closed.
    Ended,
}

/// What is served.
pub struct Service {
    /// As in the path.
    pub name: String,
    /// The streams' method.
    pub method: String,
    /// `None`: whoever connects may open a stream.
    pub token: Option<String>,
    /// `None`: without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Bytes of the largest message that is taken.
    pub largest: usize,
    /// Streams at a time, of all connections.
    pub most_sessions: usize,
    /// Of connections.
    pub keepalive: Keepalive,
    /// For which a connection may be open without a stream; twice that, if there has been one.
    pub unused: Duration,
    /// Called for each stream, in a thread of its own.
    pub handle: Box<dyn Fn(Session) + Send + Sync>,
}

/// A server that was bound.
pub struct Server {
    driver: Arc<Driver>,
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// Where it listens.
    pub port: u16,
}

struct Shared {
    service: Service,
    phase: watch::Sender<Phase>,
    sessions: AtomicUsize,
    changed: Notify,
    strangers: Arc<Strangers>,
}

impl Server {
    /// Bind an address.
    ///
    /// # Errors
    /// It is taken, none of this machine's, or no address.
    pub fn bind(address: &str, service: Service) -> io::Result<Self> {
        let driver = Driver::new()?;
        let (listener, port) = driver.wait(Listener::bind(address))?;
        let shared = Arc::new(Shared {
            service,
            phase: watch::Sender::new(Phase::Serving),
            sessions: AtomicUsize::new(0),
            changed: Notify::new(),
            strangers: Arc::default(),
        });
        Ok(Self { driver, shared, listener: Mutex::new(Some(listener)), port })
    }

    /// Begin to accept connections, in a thread of its own; once.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        let taken = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(listener) = taken else { return Ok(()) };
        self.driver.handle().spawn(accept(listener, self.driver.clone(), self.shared.clone()));
        let shared = self.shared.clone();
        take_turns(self.driver.clone(), REST, move |driver| {
            // with no stream there is nobody else who would run the tasks
            while shared.sessions.load(Ordering::SeqCst) == 0 && shared.phase() != Phase::Ended {
                driver.wait(shared.changed.notified());
            }
            shared.phase() != Phase::Ended
        })
    }

    /// Take no new streams, let the requests under way end for so long, and close all connections.
    pub fn stop(&self, grace: Duration) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let end = Instant::now() + grace;
        self.shared.phase.send_replace(Phase::Draining);
        self.driver.wait_until(end, async {
            while self.shared.sessions.load(Ordering::SeqCst) > 0 {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_millis(1)).await; // in which the last trailers leave
        });
        self.shared.phase.send_replace(Phase::Ended);
        self.driver.turn();
        self.shared.changed.notify_one();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.phase.send_replace(Phase::Ended);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}

/// Counts a stream among those that there are.
pub(crate) struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(listener: Listener, driver: Arc<Driver>, shared: Arc<Shared>) {
    let mut phases = shared.phase.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phases.wait_for(|phase| *phase > Phase::Serving) => return,
        };
        let Ok(socket) = accepted else {
            sleep(Duration::from_millis(20)).await; // until there are files again
            continue;
        };
        let stranger = shared.strangers.admit(MOST_STRANGERS);
        let (driver, shared, mut phases) = (driver.clone(), shared.clone(), phases.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(socket, &driver, &shared, &stranger) => {}
                () = stranger.evicted() => {}
                _ = phases.wait_for(|phase| *phase == Phase::Ended) => {}
            }
        });
    }
}

/// Serve a connection until it ends.
async fn serve(socket: Socket, driver: &Arc<Driver>, shared: &Arc<Shared>, stranger: &Stranger) {
    let tls = shared.service.tls.clone();
    let greeted = timeout(GREETING, async {
        let socket = greet(socket, tls).await.ok()?;
        let handshake = server::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .max_header_list_size(HEADERS)
            .max_concurrent_streams(MOST_STREAMS)
            .handshake::<_, Bytes>(socket);
        handshake.await.ok()
    });
    let Ok(Some(mut connection)) = greeted.await else { return };
    let mut phases = shared.phase.subscribe();
    let silence = shared.service.keepalive.silence(connection.ping_pong());
    tokio::pin!(silence);
    let mut draining = false;
    loop {
        tokio::select! {
            next = connection.accept() => match next {
                Some(Ok((request, respond))) => {
                    if let Some(health) = dispatch(request, respond, driver, shared, stranger) {
                        tokio::spawn(health);
                    }
                }
                _ => return,
            },
            () = &mut silence => return,
            _ = phases.wait_for(|phase| *phase > Phase::Serving), if !draining => {
                draining = true;
                connection.graceful_shutdown();
            }
            () = sleep(shared.service.unused) => if !connection.has_streams() { return },
        }
    }
}

/// Refuse a stream, start its thread, or return the task that answers it.
fn dispatch(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    driver: &Arc<Driver>,
    shared: &Arc<Shared>,
    stranger: &Stranger,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let service = &shared.service;
    let (head, body) = request.into_parts();
    let kind = head.headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
    if head.method != Method::POST || !kind.starts_with(b"application/grpc") {
        let mut refused = Response::new(());
        *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(refused, true); // who has gone needs no answer
        return None;
    }
    let path = head.uri.path();
    if let Some(method) = path.strip_prefix(health::PATH) {
        let requests = Messages::new(body, health::LARGEST);
        let (method, name) = (method.to_owned(), service.name.clone());
        return Some(health::answer(method, requests, respond, name, shared.phase.subscribe()));
    }
    let ours = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let status = if ours != Some((service.name.as_str(), service.method.as_str())) {
        Status::named("UNIMPLEMENTED", "no such method")
    } else if !has_token(&head.headers, service.token.as_deref()) {
        Status::named("UNAUTHENTICATED", "the token is wrong or missing")
    } else if shared.phase() != Phase::Serving {
        Status::unavailable("the worker is stopping")
    } else if shared.sessions.fetch_add(1, Ordering::SeqCst) >= service.most_sessions {
        drop(Counted(shared.clone()));
        Status::named("RESOURCE_EXHAUSTED", "the worker has as many streams as it takes")
    } else {
        let counted = Counted(shared.clone());
        stranger.stays();
        shared.changed.notify_one();
        let messages = Messages::new(body, service.largest);
        let phases = shared.phase.subscribe();
        let session = Session::new(driver.clone(), respond, messages, phases, counted);
        let (session, shared) = (session, shared.clone());
        let thread = std::thread::Builder::new().name("rlox-session".into());
        // where there is no thread, the session is dropped, which resets its stream
        let _ = thread.spawn(move || (shared.service.handle)(session));
        return None;
    };
    refuse(&mut respond, &status);
    None
}

fn has_token(headers: &HeaderMap, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
    let given = headers.get("authorization").map_or(&b""[..], HeaderValue::as_bytes);
    // the length is no secret; of the same length, each takes the same time
    given.ct_eq(format!("Bearer {token}").as_bytes()).into()
}

/// Headers of an answer that messages follow.
#[must_use]
pub fn accepted() -> Response<()> {
    let mut response = Response::new(());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

/// End a stream without messages.
pub fn refuse(respond: &mut SendResponse<Bytes>, status: &Status) {
    let mut response = accepted();
    response.headers_mut().extend(status.to_trailers());
    let _ = respond.send_response(response, true); // who has gone needs no answer
}
