//! What a benchmark prints, and the JSON it writes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::machine::machine;
use super::point::Params;
use super::spread::Spread;
use crate::failure::Failure;
use crate::format;

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
}

/// Prints rows as they come and writes the JSON at the end.
pub struct Report {
    workload: String,
    json: Json,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// The width of the first column.
    width: usize,
}

const SIDE: usize = 27;

impl Report {
    pub fn new(workload: &str, json: Option<&Path>) -> Result<Self, Failure> {
        let json = Json::create(json)?;
        Ok(Report {
            workload: workload.to_string(),
            json,
            rows: Vec::new(),
            notes: Vec::new(),
            width: 0,
        })
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
        let ratio = row.ratio.map_or("-".to_string(), format::number);
        let label = label(&row.params);
        self.line(&label, &side(&row.kernel), &side(&row.wakeset), &ratio);
        self.rows.push(row);
    }

    /// Adds a remark to print below the table.
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
    /// Creates the file before anything is measured: a failure afterwards would lose the rows.
    pub fn create(path: Option<&Path>) -> Result<Self, Failure> {
        let create = |path: &Path| {
            File::create(path)
                .map_err(|e| Failure::own(format!("cannot write to {}: {e}", path.display())))
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
            format!("{name}={}", format::short(n.as_f64().unwrap_or(0.0)))
        }
        other => format!("{name}={other}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_fields_that_are_promised() {
        let spread = Spread::of(vec![2.0]);
        let row = Row::new("stress", Params::new(), "events/ms", spread, Spread::of(vec![5.0]));
        assert_eq!(
            serde_json::to_string(&row).expect("plain data"),
            concat!(
                r#"{"workload":"stress","params":{},"unit":"events/ms","#,
                r#""kernel":{"median":2.0,"min":2.0,"max":2.0},"#,
                r#""wakeset":{"median":5.0,"min":5.0,"max":5.0},"ratio":2.5}"#
            )
        );
    }
}
