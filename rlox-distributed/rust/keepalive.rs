//! Connections whose other side has gone without a word are noticed by pings.

use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{sleep, timeout};

/// How the other side of a connection is asked whether it is there.
#[derive(Clone, Copy)]
pub struct Keepalive {
    /// Between pings.
    pub every: Duration,
    /// For which an answer may take.
    pub patience: Duration,
}

impl Keepalive {
    /// Return once the other side no longer answers; never, if it cannot be asked.
    pub async fn silence(self, pings: Option<PingPong>) {
        let Some(mut pings) = pings else { return std::future::pending().await };
        loop {
            sleep(self.every).await;
            if !matches!(timeout(self.patience, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}
