//! Values of flags in Go's syntax.

use std::{convert::Infallible, path::PathBuf, time::Duration};

/// A text that is not a duration in Go's syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid duration: write it as 15s, 1m30s or 300ms")]
pub struct InvalidDuration(String);

/// Units by their names, in nanoseconds; those that begin like another one come first.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Reads a duration such as `1h30m`, `1.5s` or `0`; a negative one is refused.
pub fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanoseconds = 0.0;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (name, unit) =
            UNITS.iter().find(|(name, _)| rest.starts_with(name)).ok_or_else(invalid)?;
        nanoseconds += number * unit;
        rest = &rest[name.len()..];
        if rest.is_empty() {
            // Go keeps a duration in 63 bits of nanoseconds.
            let fits = nanoseconds <= 9.2e18;
            return if fits { Ok(exact(nanoseconds)) } else { Err(invalid()) };
        }
    }
}

/// Below 2⁵³ ns (104 days) this is exact; beyond it nanoseconds do not matter.
fn exact(nanoseconds: f64) -> Duration {
    Duration::from_secs_f64((nanoseconds / 1e9).trunc())
        + Duration::from_secs_f64((nanoseconds % 1e9) / 1e9)
}

/// An alias of `Option`, so that clap accepts `--flag=` as an empty value, as Go does.
pub type OptionalPath = Option<PathBuf>;

/// Reads a path; an empty text is `None`.
pub fn optional_path(text: &str) -> Result<OptionalPath, Infallible> {
    Ok(Some(PathBuf::from(text)).filter(|_| !text.is_empty()))
}

/// Reads a switch as Go does.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let check = |text: &str, milliseconds: u64| {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        };
        check("0", 0);
        check("0s", 0);
        check("15s", 15_000);
        check("1m30s", 90_000);
        check("1h", 3_600_000);
        check("1.5s", 1_500);
        check(".5s", 500);
        check("1.s", 1_000);
        check("+5s", 5_000);
        check("300ms", 300);
        check("2000us", 2);
        check("2000µs", 2);
        check("1s1s", 2_000);
        for wrong in ["", "15", "-5s", "s", "1x", "1 s", "1m 30s", ".s", "1..5s", "9999999h", "+"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_duration_is_the_sum_of_its_parts(hours in 0u64..100, minutes in 0u64..100, seconds in 0u64..100, millis in 0u64..2000) {
            let text = format!("{hours}h{minutes}m{seconds}s{millis}ms");
            let expected = Duration::from_millis(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis);
            prop_assert_eq!(duration(&text).unwrap(), expected);
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.a-zµ ]{0,12}") {
            duration(&text).ok();
        }
    }
}
