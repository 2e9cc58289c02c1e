//! What a benchmark prints, and the JSON it writes.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::Params;
use crate::{Failure, table};

/// One line of the report. Rates, so that more is better everywhere.
#[derive(Serialize)]
pub struct Row {
    workload: String,
    params: Params,
    unit: &'static str,
    kernel: Option<Spread>,
    wakeset: Option<Spread>,
    ratio: Option<f64>,
}

impl Row {
    pub fn new(
        workload: &str,
        params: Params,
        unit: &'static str,
        kernel: Option<Spread>,
        wakeset: Option<Spread>,
    ) -> Self {
        let ratio = match (&kernel, &wakeset) {
            (Some(kernel), Some(wakeset)) => Some(wakeset.median / kernel.median),
            _ => None,
        };
        Row { workload: workload.to_string(), params, unit, kernel, wakeset, ratio }
    }

    pub fn set_param(&mut self, name: &str, value: &str) {
        self.params.insert(name.to_string(), value.into());
    }
}

/// The middle and the ends of what the rounds came to.
#[derive(Serialize)]
pub struct Spread {
    pub median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub fn of(mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_by(f64::total_cmp);
        let (min, max) = (*rates.first()?, *rates.last()?);
        let (low, high) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, min, max] = [self.median, self.min, self.max].map(table::short);
        write!(f, "{median} ({min} - {max})")
    }
}

/// Prints rows as they come and writes the JSON at the end.
pub struct Report {
    workload: String,
    json: Json,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// How wide the first column is.
    width: usize,
}

const SIDE: usize = 27;

impl Report {
    pub fn new(workload: &str, json: Option<&Path>) -> Result<Self, Failure> {
        let json = Json::create(json)?;
        Ok(Report { workload: workload.to_string(), json, rows: Vec::new(), notes: Vec::new(), width: 0 })
    }

    /// Prints the machine and the headings of a table for these rows.
    pub fn begin(&mut self, rows: impl Iterator<Item = Params>, unit: &str) {
        let heading = format!("{}, {unit}", self.workload);
        let labels = rows.map(|params| label(&params).len());
        // Some rows say more once they are measured.
        self.width = labels.max().unwrap_or(0).max(heading.len()).max(40);
        println!("{}", machine());
        println!("median (min - max) of the rounds; a ratio over 1 means Wakeset is faster\n");
        self.line(&heading, "kernel", "wakeset", "ratio");
    }

    fn line(&self, label: &str, kernel: &str, wakeset: &str, ratio: &str) {
        let width = self.width;
        println!("{label:<width$}{kernel:>SIDE$}{wakeset:>SIDE$}{ratio:>8}");
    }

    pub fn add(&mut self, row: Row) {
        let side = |side: &Option<Spread>| match side {
            Some(spread) => spread.to_string(),
            None => "-".to_string(),
        };
        let ratio = row.ratio.map_or("-".to_string(), table::number);
        let label = label(&row.params);
        self.line(&label, &side(&row.kernel), &side(&row.wakeset), &ratio);
        self.rows.push(row);
    }

    /// Something to say below the table.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn finish(self) -> Result<(), Failure> {
        for note in &self.notes {
            println!("\n{note}");
        }
        self.json.write(&self.rows)
    }
}

/// The file that the rows go to, if one was asked for.
pub struct Json(Option<File>);

impl Json {
    /// Opens it first: to fail after minutes of measuring would lose them.
    pub fn create(path: Option<&Path>) -> Result<Self, Failure> {
        let create = |path: &Path| {
            File::create(path).map_err(|e| Failure::own(format!("cannot write to {}: {e}", path.display())))
        };
        path.map(create).transpose().map(Json)
    }

    /// Writes an array with a row on each line.
    pub fn write(self, rows: &[impl Serialize]) -> Result<(), Failure> {
        let Some(mut file) = self.0 else { return Ok(()) };
        array(rows)
            .and_then(|text| file.write_all(text.as_bytes()))
            .map_err(|e| Failure::own(format!("cannot write the JSON: {e}")))
    }
}

fn array(rows: &[impl Serialize]) -> io::Result<String> {
    let mut text = String::from("[\n");
    for (i, row) in rows.iter().enumerate() {
        text += &serde_json::to_string(row)?;
        text += if i + 1 < rows.len() { ",\n" } else { "\n" };
    }
    Ok(text + "]\n")
}

/// Parameters in one line, `threads=2 mode=edge`.
pub fn label(params: &Params) -> String {
    let pairs = params.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        Value::Number(n) if n.is_f64() => {
            format!("{name}={}", table::short(n.as_f64().unwrap_or(0.0)))
        }
        other => format!("{name}={other}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// The processor, how many of them, and the kernel.
pub fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(std::env::consts::ARCH, |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = match cores {
        1 => "1 core".to_string(),
        n => format!("{n} cores"),
    };
    format!("{model}, {cores}, Linux {}", kernel_release())
}

/// From uname(2), which needs no /proc: `bench inversion` may be all that runs on a machine.
fn kernel_release() -> String {
    // SAFETY: a structure of byte arrays.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    if unsafe { libc::uname(&mut names) } != 0 {
        return String::new();
    }
    let bytes = names.release.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
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

    #[test]
    fn a_row_has_the_fields_that_are_promised() {
        let spread = Spread::of(vec![2.0]);
        let row = Row::new("stress", Params::new(), "events/ms", spread, Spread::of(vec![5.0]));
        assert_eq!(
            serde_json::to_string(&row).expect("plain data"),
            r#"{"workload":"stress","params":{},"unit":"events/ms","kernel":{"median":2.0,"min":2.0,"max":2.0},"wakeset":{"median":5.0,"min":5.0,"max":5.0},"ratio":2.5}"#
        );
    }
}
