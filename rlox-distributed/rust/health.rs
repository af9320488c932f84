//! `grpc.health.v1`: whether a worker serves.
//!
//! Its two messages have one field each: a request's service, a text of field 1, and an answer's
//! status, a number of field 1.

use bytes::Bytes;
use h2::SendStream;
use h2::server::SendResponse;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use crate::messages::{Messages, framed};
use crate::server::{Phase, accepted, refuse};
use crate::status::{Result, Status};
use crate::wire::{Field, Fields, Value};

/// Paths begin with this.
pub const PATH: &str = "/grpc.health.v1.Health/";
/// Bytes of the largest request.
pub const LARGEST: usize = 1024;
/// For which the request may be awaited.
const PATIENCE: Duration = Duration::from_secs(10);

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const UNKNOWN: u64 = 3;

/// Answer a request for the health of a service.
///
/// The server itself has the empty name.
pub async fn answer(
    method: String,
    mut requests: Messages,
    mut respond: SendResponse<Bytes>,
    service: String,
    phases: watch::Receiver<Phase>,
) {
    let asked = match timeout(PATIENCE, requests.next()).await {
        Ok(Ok(Some(message))) => service_of(&message),
        Ok(Ok(None)) => Err(Status::named("INVALID_ARGUMENT", "the request is missing")),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::named("DEADLINE_EXCEEDED", "the request has not come")),
    };
    let known = match asked {
        Ok(asked) => asked.is_empty() || asked == service,
        Err(status) => return refuse(&mut respond, &status),
    };
    match method.as_str() {
        "Check" if known => {
            let Ok(mut send) = respond.send_response(accepted(), false) else { return };
            if send_status(&mut send, status(*phases.borrow())).is_ok() {
                let _ = send.send_trailers(Status::named("OK", "").to_trailers());
            }
        }
        "Check" => refuse(&mut respond, &Status::named("NOT_FOUND", "no such service")),
        "Watch" => {
            let Ok(send) = respond.send_response(accepted(), false) else { return };
            watch(send, known, phases).await;
        }
        _ => refuse(&mut respond, &Status::named("UNIMPLEMENTED", "no such method")),
    }
}

/// Say the status now and whenever it changes, until the one who asked has gone.
async fn watch(mut send: SendStream<Bytes>, known: bool, mut phases: watch::Receiver<Phase>) {
    loop {
        let now = if known { status(*phases.borrow_and_update()) } else { UNKNOWN };
        if send_status(&mut send, now).is_err() {
            return;
        }
        tokio::select! {
            changed = phases.changed() => if changed.is_err() { return },
            _ = std::future::poll_fn(|context| send.poll_reset(context)) => return,
        }
    }
}

fn status(phase: Phase) -> u64 {
    if phase == Phase::Serving { SERVING } else { NOT_SERVING }
}

fn send_status(send: &mut SendStream<Bytes>, status: u64) -> Result<()> {
    Ok(send.send_data(framed(&Field::encode(&[Field::Number(1, status)]))?, false)?)
}

/// Return the service that a request names.
fn service_of(message: &[u8]) -> Result<String> {
    let invalid = || Status::named("INVALID_ARGUMENT", "the request is none of grpc.health.v1");
    let mut name = &[][..];
    for field in Fields::new(message) {
        if let (1, Value::Bytes(text)) = field.map_err(|_| invalid())? {
            name = text;
        }
    }
    String::from_utf8(name.to_vec()).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_or_refused() {
        assert_eq!(service_of(b"").unwrap(), "");
        assert_eq!(service_of(b"\x0A\x03abc").unwrap(), "abc");
        assert_eq!(service_of(b"\x12\x01x\x0A\x03abc").unwrap(), "abc");
        for other in [&b"\x0A"[..], b"\x0A\x04abc", b"\x0A\x02abc", b"\x0A\x01\xFF"] {
            assert_eq!(service_of(other).unwrap_err().code, "INVALID_ARGUMENT");
        }
    }
}
