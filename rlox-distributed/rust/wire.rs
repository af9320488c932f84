//! Fields of protobuf's messages, as bytes.

use std::borrow::Cow;

/// What has the bytes of no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Bytes of the largest varint.
const MOST_BYTES: usize = 10;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// Bytes, a text, a message or packed numbers.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which no message of workers has.
    Fixed,
}

/// The fields of a message in turn, with their numbers.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Read a message, which is looked at no further than it is asked for.
    #[must_use]
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self, size: u64) -> Result<&'a [u8], Malformed> {
        let size = usize::try_from(size).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(size).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = u32::try_from(varint(&mut self.0)?).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.0)?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let size = varint(&mut self.0)?;
                Value::Bytes(self.take(size)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed), // groups, which proto3 does not have
        };
        if key >> 3 == 0 { Err(Malformed) } else { Ok((key >> 3, value)) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() { None } else { Some(self.field()) }
    }
}

/// Take a number off the beginning of some bytes.
///
/// # Errors
/// They begin with none of 64 bits.
pub fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().take(MOST_BYTES).enumerate() {
        if at + 1 == MOST_BYTES && byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Ok(number);
        }
    }
    Err(Malformed)
}

/// Append a number.
pub fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// A field that is to be written, with its number.
pub enum Field<'a> {
    /// A varint.
    Number(u32, u64),
    /// Bytes, or packed numbers.
    Bytes(u32, Cow<'a, [u8]>),
    /// A message.
    Message(u32, Vec<Field<'a>>),
}

impl Field<'_> {
    /// Return the bytes of a message of some fields.
    #[must_use]
    pub fn encode(fields: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::size(fields));
        Self::write(fields, &mut bytes);
        bytes
    }

    fn size(fields: &[Self]) -> usize {
        let size = |field: &Self| match field {
            Self::Number(number, value) => key_size(*number) + varint_size(*value),
            Self::Bytes(number, value) => key_size(*number) + sized(value.len()),
            Self::Message(number, inner) => key_size(*number) + sized(Self::size(inner)),
        };
        fields.iter().map(size).sum()
    }

    fn write(fields: &[Self], bytes: &mut Vec<u8>) {
        for field in fields {
            match field {
                Self::Number(number, value) => {
                    put_varint(bytes, u64::from(number << 3));
                    put_varint(bytes, *value);
                }
                Self::Bytes(number, value) => {
                    put_varint(bytes, u64::from(number << 3 | 2));
                    put_varint(bytes, value.len() as u64);
                    bytes.extend_from_slice(value);
                }
                Self::Message(number, inner) => {
                    put_varint(bytes, u64::from(number << 3 | 2));
                    put_varint(bytes, Self::size(inner) as u64);
                    Self::write(inner, bytes);
                }
            }
        }
    }
}

fn varint_size(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn key_size(number: u32) -> usize {
    varint_size(u64::from(number << 3))
}

/// Return the size of so many bytes with their number before them.
fn sized(bytes: usize) -> usize {
    varint_size(bytes as u64) + bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(bytes.len(), varint_size(number));
            for size in 0..bytes.len() {
                assert_eq!(varint(&mut &bytes[..size]), Err(Malformed));
            }
            bytes.push(7);
            let mut rest = &bytes[..];
            assert_eq!((varint(&mut rest), rest), (Ok(number), &[7][..]));
        }
        assert_eq!(varint(&mut &[0xff; 11][..]), Err(Malformed));
    }

    #[test]
    fn fields_come_back_and_take_the_room_that_was_made() {
        let large = vec![5; 1000];
        let inner = vec![Field::Bytes(1, large.as_slice().into()), Field::Number(2, 1 << 40)];
        let bytes = Field::encode(&[
            Field::Number(1, 300),
            Field::Message(16, inner),
            Field::Bytes(2, Vec::new().into()),
        ]);
        assert_eq!(bytes.len(), bytes.capacity());
        let fields: Vec<_> = Fields::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(fields[0], (1, Value::Number(300)));
        assert_eq!(fields[2], (2, Value::Bytes(&[])));
        let (16, Value::Bytes(message)) = fields[1] else { panic!("{fields:?}") };
        let fields: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
        assert_eq!(fields, [(1, Value::Bytes(&large)), (2, Value::Number(1 << 40))]);
    }

    #[test]
    fn what_is_no_field_is_refused() {
        // no number, groups, a wire type that there is none of, cut short, endless
        for bytes in [
            &[0x00, 0x01][..],
            &[0x0b],
            &[0x0c],
            &[0x0e],
            &[0x0a, 0x02, 0x00],
            &[0x0d, 0, 0, 0],
            &[0x09, 0, 0, 0, 0, 0, 0, 0],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00],
        ] {
            assert_eq!(Fields::new(bytes).next(), Some(Err(Malformed)), "{bytes:?}");
        }
        assert_eq!(Fields::new(&[0x0d, 0, 0, 0, 0]).next(), Some(Ok((1, Value::Fixed))));
        assert_eq!(Fields::new(&[]).next(), None);
    }
}
