//! What goes wrong.

use std::path::PathBuf;

/// Why a file cannot be read or a policy cannot act.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is missing, no regular file, or may not be read.
    #[error("policy file '{}' cannot be read: {source}", path.display())]
    Unreadable {
        /// Of the file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no policy file, or not what was written.
    #[error("it is no policy file or is damaged: {0}; write one with rlox export")]
    Damaged(String),
    /// A newer rlox wrote it.
    #[error("it has format version {got}, this crate reads 1 to {newest}; use a newer one")]
    TooNew {
        /// Its version.
        got: String,
        /// The newest that is read.
        newest: u64,
    },
    /// It holds the policies of a team, or of one agent, where the other was asked for.
    #[error("{0}")]
    OtherKind(&'static str),
    /// An argument does not fit.
    #[error("{0}")]
    Argument(String),
}

/// What a fallible function returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Return the error of a file or a layer that does not fit.
pub(crate) fn damaged<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Damaged(why.into()))
}

/// Return the error of an argument that does not fit.
pub(crate) fn argument<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Argument(why.into()))
}
