//! Learners and workers in threads of one process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use _transport::client::{Stream, Target, shared_driver};
use _transport::server::{Keepalive, Server, Service, Session};
use bytes::Bytes;
use tonic::{Code, Status};

const GUARD: Duration = Duration::from_secs(120);
const KEEPALIVE: Keepalive = Keepalive { every: Duration::from_millis(5), patience: GUARD };

/// Echo each request; end the stream at an empty one.
fn echo(mut session: Session) {
    let mut request = session.receive(GUARD);
    while let Ok(Some(message)) = request {
        if message.is_empty() {
            return session.finish(Status::aborted("as was asked for"));
        }
        request = session.exchange(message);
    }
    session.finish(Status::ok(""));
}

fn serve() -> Server {
    let service = Service {
        token: Some("a secret".into()),
        tls: None,
        largest: 1 << 20,
        most_sessions: 16,
        keepalive: KEEPALIVE,
        unused: GUARD,
        handle: Box::new(echo),
    };
    let server = Server::bind("127.0.0.1:0", service).unwrap();
    server.start().unwrap();
    server
}

fn connect(port: u16) -> Stream {
    let target = Target {
        address: format!("127.0.0.1:{port}"),
        token: Some("a secret".into()),
        tls: None,
        largest: 1 << 20,
        keepalive: KEEPALIVE,
    };
    let driver = shared_driver().unwrap();
    driver.wait(Stream::open(driver.clone(), &target)).unwrap()
}

fn exchange(stream: &Stream, message: &[u8]) -> Result<Vec<u8>, Status> {
    let driver = stream.driver();
    driver.wait(stream.send(Some(Bytes::copy_from_slice(message))))?;
    Ok(driver.wait(stream.receive())?.unwrap().to_vec())
}

#[test]
fn many_learners_are_answered_at_once() {
    let server = serve();
    thread::scope(|scope| {
        for learner in 0..4_u8 {
            let port = server.port;
            scope.spawn(move || {
                for stream in 0..4 {
                    let stream = (stream, connect(port));
                    for size in [1, 300, 100_000] {
                        let message = vec![learner ^ stream.0; size];
                        assert_eq!(exchange(&stream.1, &message).unwrap(), message);
                    }
                    match stream.0 {
                        0 => {
                            assert_eq!(exchange(&stream.1, b"").unwrap_err().code(), Code::Aborted);
                        }
                        1 => stream.1.close(),
                        _ => {} // dropped without an end
                    }
                }
            });
        }
    });
    server.stop(GUARD);
}

#[test]
fn streams_are_closed_and_servers_stopped_from_other_threads() {
    for _ in 0..4 {
        let server = serve();
        let closed = Arc::new(connect(server.port));
        let stopped = connect(server.port);
        for stream in [&*closed, &stopped] {
            assert_eq!(exchange(stream, b"x").unwrap(), b"x");
        }
        thread::scope(|scope| {
            let waiting = closed.clone();
            let cancelled = scope.spawn(move || waiting.driver().wait(waiting.receive()));
            let ended = scope.spawn(|| stopped.driver().wait(stopped.receive()));
            scope.spawn(|| closed.close());
            scope.spawn(|| server.stop(GUARD));
            match cancelled.join().unwrap() {
                Ok(end) => assert_eq!(end, None), // the server was stopped first
                Err(failure) => assert_eq!(failure.code(), Code::Cancelled),
            }
            assert_eq!(ended.join().unwrap().unwrap(), None);
        });
    }
}
