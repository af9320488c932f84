//! Positioned reads and writes without a shared cursor, and file identity, per operating system.

use std::fs::File;
use std::io;
use std::path::Path;

/// Whether the open `file` is the one at `path`.
#[cfg(unix)]
pub(super) fn lies_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |data: std::fs::Metadata| (data.dev(), data.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(a), Ok(b)) if a == b)
}

/// Whether the open `file` is the one at `path`: no other can take the name of an open file.
#[cfg(windows)]
pub(super) fn lies_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(unix)]
pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(unix)]
pub(super) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub(super) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (bytes, offset) = (&mut bytes[n..], offset + n as u64);
    }
    Ok(())
}

#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (bytes, offset) = (&bytes[n..], offset + n as u64);
    }
    Ok(())
}
