//! Additions to tonic: messages as bytes, and the names of codes.

use bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// Names of codes by number.
const NAMES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND \
    ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE \
    UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";

/// Most characters of a sent text; a peer would drop headers that are too long.
const MOST_DETAILS: usize = 2048;

/// Return a code's name, such as `UNAVAILABLE`.
#[must_use]
pub fn name(code: Code) -> &'static str {
    NAMES.split(' ').nth(code as usize).unwrap_or("UNKNOWN")
}

/// Return a status by its code's name; `UNKNOWN` for unknown names.
#[must_use]
pub fn status(name: &str, details: &str) -> Status {
    let code = (0..).zip(NAMES.split(' ')).find(|(_, known)| *known == name);
    let code = code.map_or(Code::Unknown, |(number, _)| Code::from_i32(number));
    Status::new(code, details.chars().take(MOST_DETAILS).collect::<String>())
}

/// Messages as bytes, read and written by Python or `codec`.
#[derive(Clone, Copy, Default)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
