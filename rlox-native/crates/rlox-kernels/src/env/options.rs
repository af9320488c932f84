//! Run-time options of an env, by name.

use crate::error::{KernelError, Result};

/// The value of an option, as the caller gave it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionValue {
    /// On or off.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Real(f64),
}

impl std::fmt::Display for OptionValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value:?}"),
        }
    }
}

/// The options given to one env; each is read with its default and its range.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    env_id: &'a str,
    given: &'a [(String, OptionValue)],
}

impl<'a> Options<'a> {
    /// The options `given` to the env `env_id`, which accepts the `known` ones.
    ///
    /// # Errors
    /// [`KernelError::Env`] for an unknown option, with the most similar known one.
    pub fn new(
        env_id: &'a str,
        known: &[&str],
        given: &'a [(String, OptionValue)],
    ) -> Result<Self> {
        let options = Self { env_id, given };
        let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(&name.as_str())) else {
            return Ok(options);
        };
        let hint = super::nearest(name, known)
            .map_or_else(String::new, |near| format!(", did you mean '{near}'?"));
        let known = known.join(", ");
        Err(options.error(format!("it has no option '{name}'{hint}; its options are {known}")))
    }

    /// An option that is on or off.
    ///
    /// # Errors
    /// [`KernelError::Env`] for a number.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(OptionValue::Flag(value)) => Ok(value),
            Some(got) => Err(self.error(format!("{name} must be true or false, got {got}"))),
        }
    }

    /// A whole number in `[low, high]`.
    ///
    /// # Errors
    /// [`KernelError::Env`] for any other value.
    pub fn integer(&self, name: &str, default: u32, [low, high]: [u32; 2]) -> Result<u32> {
        let found = match self.get(name) {
            None => return Ok(default),
            Some(OptionValue::Integer(value)) => u32::try_from(value).ok(),
            Some(_) => None,
        };
        found.filter(|value| (low..=high).contains(value)).ok_or_else(|| {
            let got = self.get(name).unwrap_or(OptionValue::Integer(0));
            self.error(format!("{name} must be an integer in [{low}, {high}], got {got}"))
        })
    }

    /// A number in `[low, high]`.
    ///
    /// # Errors
    /// [`KernelError::Env`] for any other value.
    pub fn real(&self, name: &str, default: f64, [low, high]: [f64; 2]) -> Result<f64> {
        let found = match self.get(name) {
            None => return Ok(default),
            Some(OptionValue::Real(value)) => Some(value),
            #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 it is out of any range")]
            Some(OptionValue::Integer(value)) => Some(value as f64),
            Some(OptionValue::Flag(_)) => None,
        };
        // Written so that NaN, which compares false with everything, is refused.
        found.filter(|&value| value >= low && value <= high).ok_or_else(|| {
            let got = self.get(name).unwrap_or(OptionValue::Real(f64::NAN));
            self.error(format!("{name} must lie in [{low}, {high}], got {got}"))
        })
    }

    fn get(&self, name: &str) -> Option<OptionValue> {
        self.given.iter().find(|(given, _)| given == name).map(|&(_, value)| value)
    }

    fn error(&self, reason: String) -> KernelError {
        KernelError::Env { env_id: self.env_id.to_owned(), reason }
    }
}
