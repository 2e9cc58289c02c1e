//! What is printed of each side, and the row of the JSON.

use std::fmt;

use serde::Serialize;

use super::program::Sample;
use super::side::Side;
use crate::bench::measure::point::{Params, params};
use crate::bench::measure::spread::Spread;
use crate::format;

/// One side of one program.
#[derive(Serialize)]
pub struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    microseconds: Option<Spread>,
    /// How many times faster than the plain program's median.
    ratio: f64,
    /// The same, against the plain program on one processor.
    ratio_to_one_core: Option<f64>,
    processor_us: f64,
    switches: f64,
    #[serde(skip)]
    label: String,
}

impl Row {
    pub const HEADINGS: &str = concat!(
        "program            side                        microseconds",
        "   ratio  to one core  processor  switches",
    );

    /// The rows of a program, in the order of its sides.
    /// `beside`: how many programs that never wait there were.
    pub fn of(program: &str, sides: &[Side], beside: u32, samples: &[Vec<Sample>]) -> Vec<Self> {
        let measured = || sides.iter().zip(samples);
        let median = |wanted: &Side| {
            let (_, samples) = measured().find(|(side, _)| *side == wanted)?;
            Some(Spread::median(samples.iter().map(Sample::microseconds)))
        };
        let (plain, one_core) = (median(&Side::Plain), median(&Side::OneCore));
        let row = |(i, (side, samples)): (usize, (&Side, &Vec<Sample>))| {
            let each = |value: fn(&Sample) -> f64| Spread::median(samples.iter().map(value));
            let own = each(Sample::microseconds);
            let mut params = params([("program", program.into()), ("side", side.name().into())]);
            if beside > 0 {
                params.insert("beside".to_string(), beside.into());
            }
            let mut name = side.name().to_string();
            if let Side::Run(spin) = side {
                params.insert("spin".to_string(), spin.as_str().into());
                name += &format!(" {spin}");
            }
            let program = if i == 0 { program } else { "" };
            Row {
                workload: "hop",
                params,
                unit: "us",
                microseconds: Spread::of(samples.iter().map(Sample::microseconds).collect()),
                ratio: plain.unwrap_or(f64::NAN) / own,
                ratio_to_one_core: one_core.map(|one_core| one_core / own),
                processor_us: each(Sample::processor_microseconds),
                switches: each(Sample::switches_per_trip),
                label: format!("{program:<19}{name:<20}"),
            }
        };
        measured().enumerate().map(row).collect()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = self.microseconds.as_ref().map_or(String::new(), Spread::to_string);
        let [ratio, processor] = [self.ratio, self.processor_us].map(format::number);
        let to_one_core = self.ratio_to_one_core.map_or("-".to_string(), format::number);
        let (label, switches) = (&self.label, self.switches);
        write!(
            f,
            "{label}{microseconds:>20}{ratio:>8}{to_one_core:>13}{processor:>11}{switches:>10.2}"
        )
    }
}
