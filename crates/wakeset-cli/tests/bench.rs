//! `wakeset bench`, briefly: that it measures what it says it does. What comes out in time is nobody's pass condition.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `wakeset bench` with these arguments and a JSON file, which is read back if the run went well.
fn bench(name: &str, arguments: &[&str]) -> (Output, Vec<Value>) {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench");
    std::fs::create_dir_all(&directory).expect("a directory to write to");
    let json = directory.join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_wakeset"))
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .arg(&json)
        .output()
        .expect("wakeset runs");
    if !output.status.success() {
        return (output, Vec::new());
    }
    let text = std::fs::read_to_string(&json).expect("the JSON was written");
    let rows = serde_json::from_str::<Vec<Value>>(&text).expect("an array of rows");
    (output, rows)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn policies_measures_every_list_and_the_kernel() {
    let (output, rows) = bench("policies", &["policies", "--secs", "0.1", "--threads", "2,3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let labels: Vec<_> = rows.iter().map(|row| (&row["workload"], &row["params"]["producers"])).collect();
    assert_eq!(
        format!("{labels:?}"),
        r#"[(String("stress"), Number(2)), (String("stress"), Number(3)), (String("wait"), Null)]"#
    );
    assert!(rows[2]["params"]["threads"].as_u64() >= Some(2), "{}", rows[2]);
    for row in &rows {
        let median = |side: &str| row[side]["median"].as_f64().unwrap_or_else(|| panic!("no {side} in {row}"));
        let sides = ["kernel", "rwlock", "spinlock", "lock_free"].map(median);
        assert!(sides.iter().all(|&median| median > 0.0), "{row}");
        let [kernel, rwlock, spinlock, lock_free] = sides;
        let ratios = [
            ("spinlock/rwlock", spinlock / rwlock),
            ("lock-free/rwlock", lock_free / rwlock),
            ("lock-free/kernel", lock_free / kernel),
        ];
        for (name, ratio) in ratios {
            let printed = row["ratios"][name].as_f64().unwrap_or(f64::NAN);
            assert!((printed / ratio - 1.0).abs() < 1e-9, "{name} in {row}");
        }
    }
}

#[test]
fn rows_name_the_list_they_were_measured_with() {
    for workload in ["stress", "wait"] {
        for list in [Some("spinlock"), Some("rwlock"), None] {
            let mut arguments = vec![workload, "--secs", "0.05", "--threads", "1"];
            arguments.extend(list.map(|_| "--ready-list").into_iter().chain(list));
            let (output, rows) = bench(&format!("{workload}-{list:?}"), &arguments);
            assert!(output.status.success(), "{}", stderr(&output));
            assert!(!rows.is_empty());
            for row in &rows {
                assert_eq!(row["params"]["ready_list"].as_str(), list, "{row}");
                assert!(row["wakeset"]["median"].as_f64() > Some(0.0), "{row}");
            }
        }
    }
}

#[test]
fn policies_takes_no_single_list() {
    let (output, _) = bench("refused", &["policies", "--ready-list", "rwlock"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("--ready-list"), "{}", stderr(&output));
}
