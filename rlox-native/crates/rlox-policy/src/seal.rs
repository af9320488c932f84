//! Digests within policy files, which detect damage.

use sha2::{Digest, Sha256};

const MARK: &[u8] = b"rlox-sha256:";
const DIGITS: usize = 64;
const LENGTH: usize = MARK.len() + DIGITS;

/// Return whether a file holds the digest of what it held when it was sealed: with zeros there.
pub(crate) fn is_intact(content: &[u8]) -> bool {
    let Some(first) = content.windows(LENGTH).find(|w| is_digest(w)) else {
        return false;
    };
    let mut hasher = Sha256::new();
    let (mut from, mut at) = (0, 0);
    while at + LENGTH <= content.len() {
        if content[at..at + LENGTH] == *first {
            hasher.update(&content[from..at]);
            hasher.update(MARK);
            hasher.update([b'0'; DIGITS]);
            at += LENGTH;
            from = at;
        } else {
            at += 1;
        }
    }
    hasher.update(&content[from..]);
    let digest = hasher.finalize();
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    first[MARK.len()..].iter().copied().eq(digits.map(hex))
}

fn is_digest(window: &[u8]) -> bool {
    window.starts_with(MARK)
        && window[MARK.len()..].iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}
