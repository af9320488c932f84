//! The statuses with which gRPC streams end.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, StatusCode};

/// Codes of gRPC, by number; what an answer may carry is one of these.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Bytes of a text that are sent; the peer's bound on headers is no larger than it must be.
const MOST_DETAILS: usize = 2048;

/// How a stream ended, or why it broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code's name, as `UNAVAILABLE`.
    pub code: &'static str,
    /// What happened, for people.
    pub details: String,
}

/// Result of what a stream does.
pub type Result<T> = std::result::Result<T, Status>;

impl Status {
    /// A status of a known name; `UNKNOWN` where there is none of it.
    #[must_use]
    pub fn named(code: &str, details: impl Into<String>) -> Self {
        let code = NAMES.iter().find(|name| **name == code).copied().unwrap_or("UNKNOWN");
        Self { code, details: details.into() }
    }

    /// The other side cannot be reached, or the connection to it broke.
    #[must_use]
    pub fn unavailable(details: impl Into<String>) -> Self {
        Self::named("UNAVAILABLE", details)
    }

    /// This side has ended the stream.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::named("CANCELLED", "the stream was closed on this side")
    }

    /// A message is larger than what is taken.
    #[must_use]
    pub fn too_large(size: usize, largest: usize) -> Self {
        Self::named(
            "RESOURCE_EXHAUSTED",
            format!("a message of {size} bytes was sent; at most {largest} are taken"),
        )
    }

    /// The trailers with which a server ends a stream.
    #[must_use]
    pub fn to_trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        let number = NAMES.iter().position(|name| *name == self.code).unwrap_or(2);
        trailers.insert("grpc-status", HeaderValue::from(number));
        if let Ok(text) = HeaderValue::from_str(&percent_encoded(&self.details))
            && !text.is_empty()
        {
            trailers.insert("grpc-message", text);
        }
        trailers
    }

    /// The status in headers or trailers, if they have one.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let number = headers.get("grpc-status")?;
        let known = number.to_str().ok().and_then(|text| text.parse::<usize>().ok());
        let code = known.and_then(|at| NAMES.get(at).copied()).unwrap_or("UNKNOWN");
        let details =
            headers.get("grpc-message").map_or(Vec::new(), |v| percent_decoded(v.as_bytes()));
        Some(Self { code, details: String::from_utf8_lossy(&details).into_owned() })
    }

    /// The status of an answer that is none of gRPC.
    #[must_use]
    pub fn from_http(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            400 => "INTERNAL",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "UNIMPLEMENTED",
            429 | 502 | 503 | 504 => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        Self::named(code, format!("the other side answered with the HTTP status {status}"))
    }
}

impl From<h2::Error> for Status {
    fn from(error: h2::Error) -> Self {
        use h2::Reason;
        if error.is_io() || error.is_go_away() {
            return Self::unavailable(format!("the connection broke: {error}"));
        }
        let code = match error.reason() {
            Some(Reason::CANCEL) => "CANCELLED",
            Some(Reason::ENHANCE_YOUR_CALM) => "RESOURCE_EXHAUSTED",
            Some(Reason::INADEQUATE_SECURITY) => "PERMISSION_DENIED",
            Some(
                Reason::NO_ERROR
                | Reason::PROTOCOL_ERROR
                | Reason::INTERNAL_ERROR
                | Reason::FLOW_CONTROL_ERROR
                | Reason::FRAME_SIZE_ERROR
                | Reason::COMPRESSION_ERROR,
            ) => "INTERNAL",
            _ => "UNAVAILABLE",
        };
        Self::named(code, format!("the stream broke: {error}"))
    }
}

/// Text as `grpc-message` has it: printable ASCII but for percent signs, which stand for bytes.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if encoded.len() >= MOST_DETAILS {
            break;
        }
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // to a string: it cannot fail
        }
    }
    encoded
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'%').then(|| after.get(..2)).flatten();
        let value = digits
            .and_then(|two| std::str::from_utf8(two).ok())
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_from_trailers() {
        for details in ["", "plain", "100 % of 'é'\n\u{1F980}", "%", "%4", "%zz", "a%20b"] {
            let status = Status::named("ABORTED", details);
            assert_eq!(Status::from_headers(&status.to_trailers()), Some(status));
        }
    }

    #[test]
    fn numbers_that_are_no_codes_are_unknown() {
        for number in ["17", "-1", "x", ""] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(number));
            assert_eq!(Status::from_headers(&headers).unwrap().code, "UNKNOWN");
        }
        assert_eq!(Status::from_headers(&HeaderMap::new()), None);
        assert_eq!(Status::named("NO_SUCH", "").code, "UNKNOWN");
    }

    #[test]
    fn long_texts_are_cut() {
        let trailers = Status::named("UNKNOWN", "x".repeat(1 << 20)).to_trailers();
        assert_eq!(trailers["grpc-message"].len(), MOST_DETAILS);
    }
}
