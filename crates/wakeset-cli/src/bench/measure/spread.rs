//! The median of several rounds, and how far apart they were.

use std::fmt;

use serde::Serialize;

use crate::format;

/// The median and the extremes of what the rounds came to.
#[derive(Serialize)]
pub struct Spread {
    pub median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// `None` if there are no values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }

    /// The median alone; NaN if there are no values.
    pub fn median(values: impl Iterator<Item = f64>) -> f64 {
        Spread::of(values.collect()).map_or(f64::NAN, |spread| spread.median)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, min, max] = [self.median, self.min, self.max].map(format::short);
        write!(f, "{median} ({min} - {max})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even() {
        let spread = |rates: &[f64]| {
            let spread = Spread::of(rates.to_vec())?;
            Some((spread.median, spread.min, spread.max))
        };
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
    }
}
