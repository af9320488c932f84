//! Connections whose other side has gone without a word are noticed by pings.

use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{sleep, timeout};

/// Between pings, and for which an answer may take.
const EVERY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Return once the other side no longer answers; never, if it cannot be asked.
pub async fn silence(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(EVERY).await;
        if !matches!(timeout(PATIENCE, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}
