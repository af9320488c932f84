//! Messages in the bodies of HTTP/2 streams: a byte, four of the length, and the message.

use std::future::poll_fn;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;

use crate::status::{Result, Status};

const PREFIX: usize = 5;

/// Return a message as it is sent.
///
/// # Errors
/// It has 4 GiB or more.
pub fn framed(message: &[u8]) -> Result<Bytes> {
    let length = u32::try_from(message.len())
        .map_err(|_| Status::too_large(message.len(), u32::MAX as usize))?;
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(message);
    Ok(frame.freeze())
}

/// The messages that a stream brings, none larger than a bound.
pub struct Messages {
    body: RecvStream,
    pieces: Pieces,
}

impl Messages {
    /// Read a body, with messages of at most `largest` bytes.
    #[must_use]
    pub fn new(body: RecvStream, largest: usize) -> Self {
        Self { body, pieces: Pieces { largest, ..Pieces::default() } }
    }

    /// Return the next message, or `None` at the end of the body.
    ///
    /// Dropped before it is ready, it has lost nothing.
    ///
    /// # Errors
    /// The stream broke, or what it brings is no message that is taken.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.pieces.take()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| self.body.poll_data(context)).await {
                Some(data) => {
                    let data = data?;
                    self.body.flow_control().release_capacity(data.len())?;
                    self.pieces.add(data);
                }
                None if self.pieces.held.is_empty() => return Ok(None),
                None => return Err(Status::named("INTERNAL", "the stream ended in a message")),
            }
        }
    }

    /// Return what follows the body.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>> {
        Ok(poll_fn(|context| self.body.poll_trailers(context)).await?)
    }
}

/// Data that has come, and no message yet.
#[derive(Default)]
struct Pieces {
    held: Bytes,
    /// A message of several pieces.
    growing: BytesMut,
    largest: usize,
}

impl Pieces {
    fn add(&mut self, data: Bytes) {
        if self.held.is_empty() && self.growing.is_empty() {
            self.held = data; // most often a whole message, which is not copied
            return;
        }
        if self.growing.is_empty() {
            self.growing.extend_from_slice(&self.held);
        }
        self.growing.extend_from_slice(&data);
        self.held = Bytes::new();
    }

    fn take(&mut self) -> Result<Option<Bytes>> {
        let seen: &[u8] = if self.growing.is_empty() { &self.held } else { &self.growing };
        let Some((prefix, rest)) = seen.split_at_checked(PREFIX) else { return Ok(None) };
        let (mut lengths, arrived) = (&prefix[1..], rest.len());
        if prefix[0] != 0 {
            return Err(Status::named("UNIMPLEMENTED", "compressed messages are not taken"));
        }
        let length = lengths.get_u32() as usize;
        if length > self.largest {
            return Err(Status::too_large(length, self.largest));
        }
        if arrived < length {
            return Ok(None);
        }
        if !self.growing.is_empty() {
            self.held = std::mem::take(&mut self.growing).freeze();
        }
        self.held.advance(PREFIX);
        Ok(Some(self.held.split_to(length)))
    }

    #[cfg(test)]
    fn new(largest: usize) -> Self {
        Self { largest, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let sent: Vec<Vec<u8>> = [0, 1, 7, 300].map(|n| (0..=255).cycle().take(n).collect()).into();
        let stream: Vec<u8> = sent.iter().flat_map(|m| framed(m).unwrap()).collect();
        for size in 1..=stream.len() {
            let mut pieces = Pieces::new(300);
            let mut got: Vec<Vec<u8>> = Vec::new();
            for piece in stream.chunks(size) {
                pieces.add(Bytes::copy_from_slice(piece));
                while let Some(message) = pieces.take().unwrap() {
                    got.push(message.to_vec());
                }
            }
            assert_eq!(got, sent);
            assert!(pieces.held.is_empty() && pieces.growing.is_empty());
        }
    }

    #[test]
    fn what_is_too_large_or_compressed_is_refused_by_its_prefix() {
        let mut pieces = Pieces::new(10);
        pieces.add(Bytes::from_static(&[0, 0, 0, 0, 11]));
        assert_eq!(pieces.take().unwrap_err().code, "RESOURCE_EXHAUSTED");
        let mut pieces = Pieces::new(10);
        pieces.add(Bytes::from_static(&[1, 0, 0, 0, 1]));
        assert_eq!(pieces.take().unwrap_err().code, "UNIMPLEMENTED");
    }
}
