//! The file of a tiered buffer: records with checksums, and the last durable commit.
//!
//! It is read and written by calls, never mapped: a full disk or a truncated file is then an error
//! of a call, not a signal that kills the process.
//!
//! A header names the layout. Two commits follow, written in turn, so that one is whole whenever
//! the process ends. A new file has both: a file that lacks one is damaged, not new. Then come the
//! slots; transition number k lies in slot k mod `n_slots`, with its number and a checksum.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::system::{lies_at, read_exact_at, write_all_at};
use crate::error::{KernelError, Result};
use crate::replay::layout::{Layout, Parts};
use crate::replay::values::DType;

const MAGIC: &[u8; 8] = b"rloxcold";
const VERSION: u64 = 2;
/// The version of files without commits before their first flush.
const LATE_COMMITS: u64 = 1;
/// Replaces the version until the first commits are durable: nothing has been stored yet.
const UNFINISHED: u64 = 0;
/// Words of the header: magic, version, and the layout.
const HEADER: usize = 10;
/// Words of a commit: generation, count, and the random stream.
const COMMIT: usize = 8;
/// Bytes from header to commits to slots: at least a disk's sector.
const BLOCK: u64 = 4096;
/// Bytes of a slot in addition to the record: its number and the checksum.
const FRAME: usize = 12;

/// A durable state of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Commit {
    /// Number of transitions pushed by then.
    pub(super) count: u64,
    /// The words of the random stream.
    pub(super) stream: [u64; 6],
}

#[derive(Debug)]
pub(super) struct ColdFile {
    file: File,
    path: PathBuf,
    /// Bytes of a record.
    payload: usize,
    n_slots: u64,
    generation: u64,
    /// Whether the file outlives the buffer.
    keep: bool,
    /// The process that opened the file: a copy of the buffer in a forked child does not own it.
    process: u32,
    /// Slots being read or written.
    frames: Vec<u8>,
}

impl ColdFile {
    /// Creates a file, with `keep` starting with a commit of no transitions and `stream`; or, with
    /// `keep`, opens an existing file and returns its newest commit.
    pub(super) fn open(
        path: &Path,
        layout: &Layout,
        n_slots: u64,
        keep: bool,
        stream: [u64; 6],
    ) -> Result<(Self, Option<Commit>)> {
        let payload = Parts::new(layout)?.payload();
        // The working directory may change before the file is deleted.
        let path = &std::path::absolute(path).map_err(|cause| io_error("open", path, &cause))?;
        let error = |action| move |error| io_error(action, path, &error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(error("open"))?;
        let metadata = file.metadata().map_err(error("open"))?;
        let (length, process) = (metadata.len(), std::process::id());
        let wrong = |reason| Err(KernelError::File { path: path.display().to_string(), reason });
        if !metadata.is_file() {
            return wrong("is not a regular file; choose another path");
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return wrong("is in use by another buffer"),
            Err(TryLockError::Error(cause)) => return Err(io_error("lock", path, &cause)),
        }
        // Kept until the file is known not to be foreign.
        let (path, generation, frames) = (path.clone(), 0, Vec::new());
        let mut cold =
            Self { file, path, payload, n_slots, generation, keep: true, process, frames };
        let header = header(layout, n_slots, keep);
        if length > 0 {
            let Some(found) = cold.read_words::<HEADER>(0)? else {
                return wrong(
                    "exists and is not a replay buffer, or is damaged; choose another path",
                );
            };
            let known = [VERSION, LATE_COMMITS, UNFINISHED].contains(&found[1]);
            if !known || found[2] != header[2] {
                return wrong(
                    "was written with the other value of keep or by another version; delete it \
                     or choose another path",
                );
            }
            if keep && found[1] != UNFINISHED {
                if found[2..] != header[2..] {
                    return wrong("holds a buffer of other sizes or types than requested");
                }
                let commit = cold.last_commit(found[1] == LATE_COMMITS)?;
                return Ok((cold, commit));
            }
        }
        // Overwrites a file left behind by a buffer without `keep`.
        cold.file.set_len(0).map_err(error("truncate"))?;
        if keep {
            let mut unfinished = header;
            unfinished[1] = UNFINISHED;
            cold.write_words(0, &unfinished)?;
            for _ in 0..2 {
                cold.commit(&Commit { count: 0, stream })?;
            }
        }
        cold.write_words(0, &header)?;
        cold.keep = keep;
        Ok((cold, None))
    }

    /// Largest number of slots in a file, for records of `payload` bytes.
    pub(super) fn most_slots(payload: usize) -> u64 {
        (i64::MAX.cast_unsigned() - 3 * BLOCK) / (payload as u64).saturating_add(FRAME as u64)
    }

    fn error(&self, action: &'static str, cause: &io::Error) -> KernelError {
        io_error(action, &self.path, cause)
    }

    fn corrupt(&self) -> KernelError {
        let reason = "is damaged: a checksum does not match its content";
        KernelError::File { path: self.path.display().to_string(), reason }
    }

    pub(super) fn n_slots(&self) -> u64 {
        self.n_slots
    }

    pub(super) fn keeps(&self) -> bool {
        self.keep
    }

    /// Writes the records of the transitions from number `first` on.
    pub(super) fn write<'r>(
        &mut self,
        first: u64,
        records: impl Iterator<Item = &'r [u8]>,
    ) -> Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut from = first;
        let mut written = Ok(());
        for (number, record) in (first..).zip(records) {
            if number > from && number.is_multiple_of(self.n_slots) {
                written = written.and_then(|()| self.write_frames(from, &frames));
                from = number;
                frames.clear();
            }
            let start = frames.len();
            frames.extend_from_slice(&number.to_le_bytes());
            frames.extend_from_slice(record);
            let checksum = crc32fast::hash(&frames[start..]);
            frames.extend_from_slice(&checksum.to_le_bytes());
        }
        written = written.and_then(|()| self.write_frames(from, &frames));
        self.frames = frames;
        written
    }

    fn write_frames(&self, first: u64, frames: &[u8]) -> Result<()> {
        write_all_at(&self.file, frames, self.offset(first))
            .map_err(|cause| self.error("write to", &cause))
    }

    fn offset(&self, number: u64) -> u64 {
        3 * BLOCK + number % self.n_slots * (self.payload + FRAME) as u64
    }

    /// Appends the record of transition `number` to `records`.
    pub(super) fn read(&mut self, number: u64, records: &mut Vec<u8>) -> Result<()> {
        let offset = self.offset(number);
        self.frames.resize(self.payload + FRAME, 0);
        if let Err(cause) = read_exact_at(&self.file, &mut self.frames, offset) {
            // A file that is too short has been truncated from outside.
            let cut = cause.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if cut { self.corrupt() } else { self.error("read from", &cause) });
        }
        let (body, checksum) = self.frames.split_at(8 + self.payload);
        let whole = crc32fast::hash(body).to_le_bytes() == checksum;
        if !whole || body[..8] != number.to_le_bytes() {
            return Err(self.corrupt());
        }
        records.extend_from_slice(&body[8..]);
        Ok(())
    }

    /// Makes all written data durable, then `commit` as its state.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<()> {
        self.sync()?;
        let [a, b, c, d, e, f] = commit.stream;
        let generation = self.generation + 1;
        let place = (1 + generation % 2) * BLOCK;
        self.write_words(place, &[generation, commit.count, a, b, c, d, e, f])?;
        self.sync()?;
        self.generation = generation;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|cause| self.error("write to", &cause))
    }

    /// The newest commit; `None` if the process ended before a `late` first one.
    fn last_commit(&mut self, late: bool) -> Result<Option<Commit>> {
        let mut commits = [[0; COMMIT]; 2];
        for (commit, place) in commits.iter_mut().zip([BLOCK, 2 * BLOCK]) {
            // A commit is smaller than a sector, which is written whole or not at all: a place
            // neither valid nor untouched is damaged.
            match self.read_words(place)? {
                Some(words) => *commit = words,
                None if late && self.is_untouched(place)? => {}
                None => return Err(self.corrupt()),
            }
        }
        let [generation, count, stream @ ..] = commits[0].max(commits[1]);
        if generation == 0 {
            return Ok(None);
        }
        // Generations are consecutive; otherwise the last commit is lost.
        if commits[0][0].abs_diff(commits[1][0]) != 1 {
            return Err(self.corrupt());
        }
        self.generation = generation;
        Ok(Some(Commit { count, stream }))
    }

    /// Whether a commit's place has never been written.
    fn is_untouched(&self, place: u64) -> Result<bool> {
        let mut bytes = [0; 8 * COMMIT + 4];
        match read_exact_at(&self.file, &mut bytes, place) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(cause) => Err(self.error("read from", &cause)),
            Ok(()) => Ok(bytes == [0; 8 * COMMIT + 4]),
        }
    }

    fn write_words(&self, offset: u64, words: &[u64]) -> Result<()> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        write_all_at(&self.file, &bytes, offset).map_err(|cause| self.error("write to", &cause))
    }

    /// The words, or `None` if their checksum is wrong.
    fn read_words<const N: usize>(&self, offset: u64) -> Result<Option<[u64; N]>> {
        let mut bytes = vec![0; 8 * N + 4];
        match read_exact_at(&self.file, &mut bytes, offset) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(cause) => return Err(self.error("read from", &cause)),
            Ok(()) => {}
        }
        let (body, checksum) = bytes.split_at(8 * N);
        if crc32fast::hash(body).to_le_bytes() != checksum {
            return Ok(None);
        }
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(body.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(Some(words))
    }
}

impl Drop for ColdFile {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // A failure of either is ignored: nothing more can be done.
        if !self.keep && lies_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
        // Otherwise child processes would keep holding the lock.
        let _ = self.file.unlock();
    }
}

fn header(layout: &Layout, n_slots: u64, keep: bool) -> [u64; HEADER] {
    let dtype = |dtype| match dtype {
        DType::U8 => 0,
        DType::I32 => 1,
        DType::I64 => 2,
        DType::F32 => 3,
        DType::F64 => 4,
    };
    [
        u64::from_le_bytes(*MAGIC),
        VERSION,
        u64::from(keep),
        n_slots,
        layout.capacity as u64,
        dtype(layout.obs.dtype),
        layout.obs.len as u64,
        dtype(layout.action.dtype),
        layout.action.len as u64,
        // Records are in the machine's byte order.
        u64::from(u16::from_ne_bytes([1, 0])),
    ]
}

fn io_error(action: &'static str, path: &Path, cause: &io::Error) -> KernelError {
    let (code, reason) = (cause.raw_os_error(), cause.to_string());
    KernelError::Io { action, path: path.display().to_string(), code, reason }
}
