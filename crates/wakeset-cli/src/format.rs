//! Numbers and tables as text.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Rows of cells as lines, each column as wide as its widest cell: the first column aligned to the
/// left, the others, which are mostly numbers, to the right.
pub fn table(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    const GAP: u16 = 2;
    let mut table = Table::new();
    table.load_style(NOTHING).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        let (gap, alignment) = match i {
            0 => (0, CellAlignment::Left),
            _ => (GAP, CellAlignment::Right),
        };
        column.set_padding((gap, 0)).set_cell_alignment(alignment);
    }
    table.trim_fmt() + "\n"
}

/// A number with about three significant digits and commas between the thousands.
pub fn number(value: f64) -> String {
    // Each bound is the smallest value that rounds up to the power of ten.
    let digits = match value.abs() {
        0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let plain = format!("{value:.digits$}");
    let (whole, fraction) = match plain.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (plain.as_str(), None),
    };
    let mut text = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text += fraction;
    }
    text
}

/// A number in few columns: three significant digits, and k, M or G for the thousands.
pub fn short(value: f64) -> String {
    let (mut value, mut suffix) = (value, "");
    for next in ["k", "M", "G"] {
        // A value that would round to 1000 belongs to the next suffix.
        if value.abs() < 999.5 {
            break;
        }
        value /= 1e3;
        suffix = next;
    }
    format!("{}{suffix}", number(value))
}

/// A share in percent; a hyphen if there is none.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_string(), |share| format!("{:.1}%", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let cases = [
            (0.0, "0"),
            (0.1234, "0.123"),
            (0.9996, "1.00"),
            (9.999, "10.0"),
            (1.5, "1.50"),
            (62.04, "62.0"),
            (999.6, "1,000"),
            (1234567.8, "1,234,568"),
            (-123456.0, "-123,456"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn short_numbers_are_short() {
        let cases = [
            (0.67, "0.670"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (2_668_179.0, "2.67M"),
            (1e10, "10.0G"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "1".into()]];
        assert_eq!(table(rows), "a     10\nlong   1\n");
        let rows = [["", "x"], ["long", ""]].map(|row| row.map(String::from).to_vec());
        assert_eq!(table(rows), "      x\nlong\n");
    }
}
