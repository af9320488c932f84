//! Elementwise functions.

pub(crate) type Function = fn(f64) -> f64;

/// Return the function of a name.
pub(crate) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "bounded" => |x| x / x.abs().max(1.0),
        "elu" => |x| if x > 0.0 { x } else { x.exp_m1() },
        "gelu" => |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        "leaky_relu" => |x| if x > 0.0 { x } else { f64::from(0.01_f32) * x },
        "relu" => |x| if x < 0.0 { 0.0 } else { x }, // keeps a NaN, as f64::max would not
        "sigmoid" => sigmoid,
        "silu" => |x| x * sigmoid(x),
        "symlog" => |x| if x == 0.0 { 0.0 } else { x.signum() * x.abs().ln_1p() },
        "tanh" => f64::tanh,
        _ => return None,
    })
}

/// 1 / (1 + e^-x).
pub(crate) fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    (if x >= 0.0 { 1.0 } else { small }) / (1.0 + small)
}

/// The error function, which Rust's standard library lacks: its series for small numbers, and the
/// continued fraction of 1 - erf for others (Abramowitz and Stegun 1964, 7.1.6 and 7.1.14).
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if x.is_nan() {
        return x;
    }
    if size > 6.0 {
        return x.signum();
    }
    let bell = (-size * size).exp();
    let value = if size < 2.5 {
        let (mut term, mut sum, mut n) = (size, size, 0.0);
        while term > 1e-17 * sum {
            n += 1.0;
            term *= 2.0 * size * size / (2.0 * n + 1.0);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * bell * sum
    } else {
        let mut fraction = size;
        for n in (1..=60).rev() {
            fraction = size + f64::from(n) / 2.0 / fraction;
        }
        1.0 - bell / fraction / std::f64::consts::PI.sqrt()
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::{erf, named};

    #[test]
    fn error_function_has_tabulated_values() {
        // Abramowitz and Stegun 1964, table 7.1, and erfc(3) of table 7.3
        let table = [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9)];
        let more = [(2.0, 0.995_322_265_0), (3.0, 0.999_977_909_5)];
        for (x, expected) in table.into_iter().chain(more) {
            assert!((erf(x) - expected).abs() < 1e-10, "{x}");
            assert!((erf(-x) + expected).abs() < 1e-10, "-{x}");
        }
        assert!((erf(2.499_999_999) - erf(2.500_000_001)).abs() < 1e-11);
    }

    #[test]
    fn functions_are_bound_and_keep_what_is_no_number() {
        for name in ["bounded", "elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "tanh"] {
            let function = named(name).expect("a name");
            assert!(function(f64::NAN).is_nan(), "{name}");
            assert!(function(-800.0).abs() < 10.0, "{name}");
        }
        assert!(named("exec").is_none());
    }
}
