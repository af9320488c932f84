//! A worker's end: connections, and permission to open streams on them.
//!
//! Connections without a token only use tasks. A stream gets a thread once its token is right.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::ServerTlsConfig;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::ServingStatus::NotServing;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::driver::{Driver, take_turns};
use crate::protocol::env_worker_server::{EnvWorker, EnvWorkerServer};
use crate::socket::{Closable, Listener};

/// Time that a stopping server waits for its streams' ends to reach the other side.
const TRAILERS: Duration = Duration::from_millis(100);
/// Largest number of simultaneous connections without a token.
const MOST_STRANGERS: usize = 256;
/// Largest number of streams of one connection.
const MOST_STREAMS: u32 = 16;
/// Time between turns while streams have threads, which may be busy with their envs.
const REST: Duration = Duration::from_millis(50);
/// Flow-control window, in bytes.
const WINDOW: u32 = 1 << 20;
const FRAME: u32 = 64 << 10;
const HEADERS: u32 = 16 << 10;
/// Bytes of the largest health request.
const HEALTH: usize = 1024;

/// Settings of pings to the other side of a connection.
#[derive(Clone, Copy)]
pub struct Keepalive {
    /// Time between pings.
    pub every: Duration,
    /// Longest time for an answer.
    pub patience: Duration,
}

/// Settings and handler of a server.
pub struct Service {
    /// `None`: any connection may open a stream.
    pub token: Option<String>,
    /// `None` for no TLS.
    pub tls: Option<ServerTlsConfig>,
    /// Bytes of the largest accepted message.
    pub largest: usize,
    /// Largest number of simultaneous streams of all connections.
    pub most_sessions: u32,
    /// Keepalive of connections.
    pub keepalive: Keepalive,
    /// Longest time of a connection without a stream; twice that if it has had one.
    pub unused: Duration,
    /// Called for each stream, in a separate thread.
    pub handle: Box<dyn Fn(Session) + Send + Sync>,
}

/// A bound server.
pub struct Server {
    driver: Arc<Driver>,
    shared: Arc<Shared>,
    listener: Mutex<Option<Listener>>,
    /// The port that it listens on.
    pub port: u16,
}

struct Shared {
    service: Service,
    health: HealthReporter,
    sessions: Arc<Semaphore>,
    began: Notify,
    /// New streams are refused, and existing ones end after the request under way.
    draining: CancellationToken,
    /// Closes all connections.
    ended: CancellationToken,
}

impl Server {
    /// Bind an address.
    ///
    /// # Errors
    /// It is taken, not of this machine, or not an address.
    pub fn bind(address: &str, service: Service) -> io::Result<Self> {
        let driver = Driver::new()?;
        let (listener, port) = driver.wait(Listener::bind(address))?;
        let shared = Arc::new(Shared {
            health: HealthReporter::new(),
            sessions: Arc::new(Semaphore::new(service.most_sessions as usize)),
            service,
            began: Notify::new(),
            draining: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        Ok(Self { driver, shared, listener: Mutex::new(Some(listener)), port })
    }

    /// Begin to accept connections in a separate thread; called once.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        let taken = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(listener) = taken else { return Ok(()) };
        let (accepted, connections) = channel(1);
        let worker = Worker { shared: self.shared.clone(), driver: Arc::downgrade(&self.driver) };
        self.driver.handle().spawn(accept(listener, accepted, self.shared.clone()));
        self.driver.handle().spawn(serve(worker, ReceiverStream::new(connections)));
        let shared = self.shared.clone();
        take_turns(self.driver.clone(), REST, move |driver| {
            // without a stream no other thread runs the tasks
            driver.wait(async {
                while !shared.ended.is_cancelled() && shared.is_idle() {
                    tokio::select! {
                        () = shared.began.notified() => {}
                        () = shared.ended.cancelled() => {}
                    }
                }
            });
            !shared.ended.is_cancelled()
        })
    }

    /// Refuse new streams, give the requests under way time to end, and close all connections.
    pub fn stop(&self, grace: Duration) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shared = &self.shared;
        shared.draining.cancel();
        self.driver.wait_until(Instant::now() + grace, async {
            shared.health.set_service_status("", NotServing).await;
            shared.health.set_not_serving::<EnvWorkerServer<Worker>>().await;
            let _ = shared.sessions.acquire_many(shared.service.most_sessions).await;
        });
        // until the last trailers have arrived: if the socket breaks before that, streams that have
        // ended cleanly fail
        self.driver.wait_until(Instant::now() + TRAILERS, std::future::pending::<()>());
        shared.ended.cancel();
        self.driver.turn();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.draining.cancel();
        self.shared.ended.cancel();
    }
}

impl Shared {
    fn is_idle(&self) -> bool {
        self.sessions.available_permits() == self.service.most_sessions as usize
    }
}

/// The other side of a connection.
struct Peer {
    sessions: AtomicUsize,
    closing: CancellationToken,
}

impl Peer {
    fn is_stranger(&self) -> bool {
        self.sessions.load(Ordering::SeqCst) == 0
    }

    /// Return once it must close: to make room, or after `unused` without a stream.
    async fn goes(self: Arc<Self>, unused: Duration) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = async {
                sleep(unused).await;
                while !self.is_stranger() {
                    sleep(unused).await;
                }
            } => {}
        }
    }
}

/// Accept connections until the drain; if too many lack a token, the oldest is closed.
async fn accept(
    listener: Listener,
    accepted: Sender<io::Result<Closable<Arc<Peer>>>>,
    shared: Arc<Shared>,
) {
    let mut peers: VecDeque<Weak<Peer>> = VecDeque::new();
    loop {
        let socket = tokio::select! {
            socket = listener.accept() => socket,
            () = shared.draining.cancelled() => return,
        };
        let Ok(socket) = socket else {
            sleep(Duration::from_millis(20)).await; // until file descriptors are free again
            continue;
        };
        peers.retain(|peer| peer.upgrade().is_some_and(|peer| !peer.closing.is_cancelled()));
        let strangers = || peers.iter().filter_map(Weak::upgrade).filter(|peer| peer.is_stranger());
        if strangers().count() >= MOST_STRANGERS
            && let Some(oldest) = strangers().next()
        {
            oldest.closing.cancel();
        }
        let closing = shared.ended.child_token();
        let peer = Arc::new(Peer { sessions: AtomicUsize::new(0), closing });
        peers.push_back(Arc::downgrade(&peer));
        let goes = peer.clone().goes(shared.service.unused);
        let _ = accepted.send(Ok(Closable::new(socket, peer, goes))).await;
    }
}

async fn serve(worker: Worker, connections: ReceiverStream<io::Result<Closable<Arc<Peer>>>>) {
    let shared = worker.shared.clone();
    let Service { keepalive, largest, .. } = shared.service;
    shared.health.set_serving::<EnvWorkerServer<Worker>>().await;
    let health = HealthService::from_health_reporter(shared.health.clone());
    let mut builder = tonic::transport::Server::builder();
    if let Some(tls) = shared.service.tls.clone() {
        // checked before: the certificate and the key fit each other
        let Ok(with_tls) = builder.tls_config(tls) else { return };
        builder = with_tls;
    }
    let served = builder
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .http2_max_header_list_size(HEADERS)
        .max_concurrent_streams(MOST_STREAMS)
        .http2_keepalive_interval(Some(keepalive.every))
        .http2_keepalive_timeout(Some(keepalive.patience))
        .add_service(HealthServer::new(health).max_decoding_message_size(HEALTH))
        .add_service(EnvWorkerServer::new(worker).max_decoding_message_size(largest))
        .serve_with_incoming_shutdown(connections, shared.draining.cancelled());
    let _ = served.await; // accepting has no errors
}

struct Worker {
    shared: Arc<Shared>,
    driver: Weak<Driver>,
}

#[tonic::async_trait]
impl EnvWorker for Worker {
    type SessionStream = ReceiverStream<Result<Bytes, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<Bytes>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let shared = self.shared.clone();
        if !has_token(request.metadata(), shared.service.token.as_deref()) {
            return Err(Status::unauthenticated("the token is wrong or missing"));
        }
        let (false, Some(driver), Some(peer)) = (
            shared.draining.is_cancelled(),
            self.driver.upgrade(),
            request.extensions().get::<Arc<Peer>>().cloned(),
        ) else {
            return Err(Status::unavailable("the worker is stopping"));
        };
        let place = shared.sessions.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted("the worker has as many streams as it takes")
        })?;
        peer.sessions.fetch_add(1, Ordering::SeqCst);
        shared.began.notify_one();
        let (answers, sent) = channel(1);
        let draining = shared.draining.clone();
        let requests = request.into_inner();
        let session = Session { driver, requests, answers, draining, peer, _place: place };
        let thread = std::thread::Builder::new().name("rlox-session".into());
        // if no thread can be started, the session is dropped, which ends its stream
        let _ = thread.spawn(move || (shared.service.handle)(session));
        Ok(Response::new(ReceiverStream::new(sent)))
    }
}

fn has_token(given: &MetadataMap, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
    let given = given.get("authorization").map_or(&b""[..], |value| value.as_bytes());
    // the length is not secret; tokens of equal length take equal time
    given.ct_eq(format!("Bearer {token}").as_bytes()).into()
}

/// A worker's side of an authenticated stream, for the thread that answers it.
pub struct Session {
    driver: Arc<Driver>,
    requests: Streaming<Bytes>,
    answers: Sender<Result<Bytes, Status>>,
    draining: CancellationToken,
    peer: Arc<Peer>,
    _place: OwnedSemaphorePermit,
}

impl Session {
    /// Return the next request, or `None` at the end: the learner's, or the server's drain.
    ///
    /// # Errors
    /// The stream broke, the request is too large, or it has not come after `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Bytes>, Status> {
        let driver = self.driver.clone();
        driver
            .wait_until(Instant::now() + patience, self.next())
            .unwrap_or_else(|| Err(Status::cancelled(format!("nothing has come in {patience:?}"))))
    }

    /// Send an answer and wait for the next request without a time limit.
    ///
    /// # Errors
    /// The stream broke, or the request is too large.
    pub fn exchange(&mut self, answer: Bytes) -> Result<Option<Bytes>, Status> {
        let driver = self.driver.clone();
        driver.wait(async {
            let gone = |_| Status::cancelled("the learner has gone");
            self.answers.send(Ok(answer)).await.map_err(gone)?;
            self.next().await
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        tokio::select! {
            biased;
            request = self.requests.message() => request,
            () = self.draining.cancelled() => Ok(None),
        }
    }

    /// End the stream with a status.
    pub fn finish(self, status: Status) {
        let driver = self.driver.clone();
        if status.code() != Code::Ok {
            // a broken stream accepts no status and needs none
            let _ = driver.wait(self.answers.send(Err(status)));
        }
        drop(self);
        driver.turn();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.peer.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}
