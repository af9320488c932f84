//! A worker's side of one stream, for the thread that answers it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::server::SendResponse;
use tokio::sync::watch;

use crate::driver::{Driver, settle};
use crate::messages::{Messages, framed};
use crate::server::{Counted, Phase, accepted, refuse};
use crate::status::{Result, Status};

/// A stream whose token was right.
pub struct Session {
    driver: Arc<Driver>,
    respond: SendResponse<Bytes>,
    /// Once the first answer was sent.
    answers: Option<SendStream<Bytes>>,
    messages: Messages,
    phases: watch::Receiver<Phase>,
    _counted: Counted,
}

impl Session {
    pub(crate) fn new(
        driver: Arc<Driver>,
        respond: SendResponse<Bytes>,
        messages: Messages,
        phases: watch::Receiver<Phase>,
        counted: Counted,
    ) -> Self {
        Self { driver, respond, answers: None, messages, phases, _counted: counted }
    }

    /// Return the next request, or `None` at the end: the learner's, or the server's drain.
    ///
    /// # Errors
    /// The stream broke, the request is too large, or it has not come after `patience`.
    pub fn receive(&mut self, patience: Option<Duration>) -> Result<Option<Bytes>> {
        let driver = self.driver.clone();
        match patience {
            None => driver.wait(self.next()),
            Some(patience) => {
                driver.wait_until(Instant::now() + patience, self.next()).unwrap_or_else(|| {
                    Err(Status::named("CANCELLED", format!("nothing has come in {patience:?}")))
                })
            }
        }
    }

    /// Send an answer and return the next request, as of [`Session::receive`].
    ///
    /// # Errors
    /// As of [`Session::receive`].
    pub fn exchange(&mut self, answer: &[u8]) -> Result<Option<Bytes>> {
        let driver = self.driver.clone();
        driver.wait(async {
            self.answer(answer)?;
            self.next().await
        })
    }

    fn answer(&mut self, answer: &[u8]) -> Result<()> {
        let frame = framed(answer)?;
        let sending = match &mut self.answers {
            Some(sending) => sending,
            None => self.answers.insert(self.respond.send_response(accepted(), false)?),
        };
        Ok(sending.send_data(frame, false)?)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        tokio::select! {
            biased;
            message = self.messages.next() => message,
            _ = self.phases.wait_for(|phase| *phase > Phase::Serving) => Ok(None),
        }
    }

    /// End the stream with a status.
    pub fn finish(mut self, status: &Status) {
        let driver = self.driver.clone();
        driver.wait(async move {
            match &mut self.answers {
                None => refuse(&mut self.respond, status),
                // a stream that broke takes no trailers and needs none
                Some(answers) => drop(answers.send_trailers(status.to_trailers())),
            }
            settle().await;
            drop(self);
            settle().await;
        });
    }
}
