//! Conversion of numbers to a buffer's types, without silent changes of value.

use numpy::Element;

/// Number types that other numbers convert to if representable.
pub(crate) trait Number: Element + Copy {
    /// NumPy's name of the type.
    const NAME: &'static str;

    fn from_f64(value: f64) -> Option<Self>;
    fn from_i64(value: i64) -> Option<Self>;
    fn from_u64(value: u64) -> Option<Self>;
}

macro_rules! integer {
    ($($type:ty => $name:literal),*) => {$(
        impl Number for $type {
            const NAME: &'static str = $name;

            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn from_f64(value: f64) -> Option<Self> {
                // The bounds are powers of two, or one less, rounded to it; NaN is not whole.
                let in_range = value >= Self::MIN as f64 && value < Self::MAX as f64 + 1.0;
                (in_range && value.fract() == 0.0).then_some(value as Self)
            }

            fn from_i64(value: i64) -> Option<Self> {
                value.try_into().ok()
            }

            fn from_u64(value: u64) -> Option<Self> {
                value.try_into().ok()
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty => $name:literal),*) => {$(
        impl Number for $type {
            const NAME: &'static str = $name;

            // Numbers beyond the range are refused; NaN and infinities are refused later, by name.
            #[allow(clippy::cast_possible_truncation, clippy::cast_lossless)]
            fn from_f64(value: f64) -> Option<Self> {
                let converted = value as Self;
                (converted.is_finite() || !value.is_finite()).then_some(converted)
            }

            #[allow(clippy::cast_precision_loss)]
            fn from_i64(value: i64) -> Option<Self> {
                Some(value as Self)
            }

            #[allow(clippy::cast_precision_loss)]
            fn from_u64(value: u64) -> Option<Self> {
                Some(value as Self)
            }
        }
    )*};
}

integer!(u8 => "uint8", i32 => "int32", i64 => "int64", u64 => "uint64");
float!(f32 => "float32", f64 => "float64");
