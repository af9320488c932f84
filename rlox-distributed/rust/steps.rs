//! The messages of `workers.proto` that hold arrays, as slices of their bytes.
//!
//! Fields that are not known are passed over, and one that comes twice is what protobuf makes of
//! it: the last one of numbers and bytes, all together of messages and lists. Several calls in one
//! message, which no side sends, are no step.

use crate::wire::{Field, Fields, Malformed, Value, varint};

/// The first of a list's values, and how many there are.
///
/// No more are kept than may be, whatever a message says.
#[derive(Debug, Default)]
pub struct Bounded<T> {
    /// No more than the most.
    pub kept: Vec<T>,
    /// Of those that were left out too.
    pub count: usize,
    most: usize,
}

impl<T> Bounded<T> {
    fn new(most: usize) -> Self {
        Self { kept: Vec::new(), count: 0, most }
    }

    fn push(&mut self, value: T) {
        self.count += 1;
        if self.count <= self.most {
            self.kept.push(value);
        }
    }
}

/// `Request`: its number, and the actions if it is a step.
pub struct Request<'a> {
    /// Of the request.
    pub sequence: u64,
    /// An array for each leaf of the actions.
    pub actions: Option<Bounded<&'a [u8]>>,
}

impl<'a> Request<'a> {
    const STEP: u32 = 4;

    /// Read a request whose actions have so many leaves.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn read(message: &'a [u8], leaves: usize) -> Result<Self, Malformed> {
        let mut request = Self { sequence: 0, actions: None };
        let mut others = false;
        for field in Fields::new(message) {
            match field? {
                (1, Value::Number(number)) => request.sequence = number,
                (Self::STEP, Value::Bytes(step)) => {
                    let actions = request.actions.get_or_insert_with(|| Bounded::new(leaves));
                    for field in Fields::new(step) {
                        if let (1, Value::Bytes(array)) = field? {
                            actions.push(array);
                        }
                    }
                }
                (2..=6, Value::Bytes(_)) => others = true,
                _ => {}
            }
        }
        request.actions = request.actions.filter(|_| !others);
        Ok(request)
    }

    /// Write a request for a step.
    #[must_use]
    pub fn write(sequence: u64, actions: &[&[u8]]) -> Vec<u8> {
        let step = actions.iter().map(|&array| Field::Bytes(1, array.into())).collect();
        Field::encode(&[Field::Number(1, sequence), Field::Message(Self::STEP, step)])
    }
}

/// `Observations`.
#[derive(Debug)]
pub struct Observations<'a> {
    /// An array for each leaf.
    pub obs: Bounded<&'a [u8]>,
    /// Empty where nothing is masked.
    pub masks: &'a [u8],
}

impl<'a> Observations<'a> {
    fn new(leaves: usize) -> Self {
        Self { obs: Bounded::new(leaves), masks: &[] }
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::new(message) {
            match field? {
                (1, Value::Bytes(array)) => self.obs.push(array),
                (2, Value::Bytes(masks)) => self.masks = masks,
                _ => {}
            }
        }
        Ok(())
    }
}

/// `Outcome`.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// What the envs show after the step.
    pub next: Observations<'a>,
    /// Little-endian float64.
    pub rewards: &'a [u8],
    /// One byte for each env, as all flags.
    pub terminated: &'a [u8],
    /// See `terminated`.
    pub truncated: &'a [u8],
    /// The envs whose episode ended.
    pub ended: Bounded<u64>,
    /// Their last observations: an array for each leaf.
    pub final_obs: Bounded<&'a [u8]>,
    /// Empty if false everywhere.
    pub life_lost: &'a [u8],
    /// Empty if false everywhere.
    pub lost: &'a [u8],
}

impl<'a> Outcome<'a> {
    fn new(leaves: usize, envs: usize) -> Self {
        Self {
            next: Observations::new(leaves),
            rewards: &[],
            terminated: &[],
            truncated: &[],
            ended: Bounded::new(envs),
            final_obs: Bounded::new(leaves),
            life_lost: &[],
            lost: &[],
        }
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::new(message) {
            match field? {
                (1, Value::Bytes(next)) => self.next.merge(next)?,
                (2, Value::Bytes(rewards)) => self.rewards = rewards,
                (3, Value::Bytes(flags)) => self.terminated = flags,
                (4, Value::Bytes(flags)) => self.truncated = flags,
                (5, Value::Number(env)) => self.ended.push(env),
                (5, Value::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        self.ended.push(varint(&mut packed)?);
                    }
                }
                (6, Value::Bytes(array)) => self.final_obs.push(array),
                (7, Value::Bytes(flags)) => self.life_lost = flags,
                (8, Value::Bytes(flags)) => self.lost = flags,
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a `Reply` holds.
#[derive(Debug)]
pub enum Answer<'a> {
    /// Of a reset.
    Observations(Observations<'a>),
    /// Of a step.
    Outcome(Outcome<'a>),
    /// Something else, or nothing.
    Other,
}

/// The number of `Reply.observations`.
pub const OBSERVATIONS: u32 = 3;
/// The number of `Reply.outcome`.
pub const OUTCOME: u32 = 4;

/// Read a `Reply` of so many envs whose observations have so many leaves: its number and answer.
///
/// # Errors
/// The bytes are no message.
pub fn read_reply(
    message: &[u8],
    leaves: usize,
    envs: usize,
) -> Result<(u64, Answer<'_>), Malformed> {
    let (mut sequence, mut observations, mut outcome, mut others) = (0, None, None, false);
    for field in Fields::new(message) {
        match field? {
            (1, Value::Number(number)) => sequence = number,
            (OBSERVATIONS, Value::Bytes(given)) => {
                observations.get_or_insert_with(|| Observations::new(leaves)).merge(given)?;
            }
            (OUTCOME, Value::Bytes(given)) => {
                outcome.get_or_insert_with(|| Outcome::new(leaves, envs)).merge(given)?;
            }
            (2..=7, Value::Bytes(_)) => others = true,
            _ => {}
        }
    }
    let answer = match (observations, outcome, others) {
        (Some(observations), None, false) => Answer::Observations(observations),
        (None, Some(outcome), false) => Answer::Outcome(outcome),
        _ => Answer::Other,
    };
    Ok((sequence, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_may_be() {
        let step: Vec<Field> = (0..1000).map(|_| Field::Bytes(1, Vec::new().into())).collect();
        let message = Field::encode(&[Field::Message(Request::STEP, step)]);
        let actions = Request::read(&message, 2).unwrap().actions.unwrap();
        assert_eq!((actions.kept.len(), actions.count), (2, 1000));
        let ended = Field::Bytes(5, vec![0; 1000].into());
        let message = Field::encode(&[Field::Message(OUTCOME, vec![ended])]);
        let Ok((0, Answer::Outcome(outcome))) = read_reply(&message, 1, 3) else { panic!() };
        assert_eq!((outcome.ended.kept.len(), outcome.ended.count), (3, 1000));
    }

    #[test]
    fn the_pieces_of_a_call_are_one_and_several_calls_none() {
        let step = |action: &'static [u8]| {
            Field::Message(Request::STEP, vec![Field::Bytes(1, action.into())])
        };
        let reset = || Field::Message(3, Vec::new());
        let read = |fields: &[Field]| {
            let bytes = Field::encode(fields);
            Request::read(&bytes, 9)
                .unwrap()
                .actions
                .map(|given| given.kept.iter().map(|array| array.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(read(&[step(b"a"), step(b"b")]), Some(vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(read(&[step(b"a"), reset()]), None);
        assert_eq!(read(&[step(b"a"), reset(), step(b"b")]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[Field::Number(Request::STEP, 1)]), None);
    }
}
