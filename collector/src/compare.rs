use std::fmt::Write;
use std::path::Path;

use phasescope::report::{self, Report, Row};
use phasescope::units::to_mib;

use crate::Answer;
use crate::args::Compare;
use crate::render::plain;

const HEADER: [&str; 8] = [
    "report",
    "case",
    "preset",
    "batch",
    "first persistent MiB",
    "step growth MiB",
    "forward increase MiB",
    "peak MiB",
];

/// One row a report; a file that cannot be read is told, and the others are shown all the same.
pub(crate) fn run(args: &Compare) -> Answer {
    let mut errors = Vec::new();
    let mut reports = Vec::new();
    for path in &args.files {
        match report::read(path) {
            Ok(report) => reports.push((path, report)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(reports.iter().map(|(path, report)| cells(path, &report::row(report))));
    let mut text = if reports.is_empty() { String::new() } else { table(&rows) };
    if args.show_phases {
        for (path, report) in &reports {
            phases(&mut text, path, report);
        }
    }
    Answer { text, errors, gate: false }
}

fn cells(path: &Path, row: &Row) -> [String; 8] {
    let mib = |value: Option<f64>| {
        value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.1}"))
    };
    let text = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), plain);
    [
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        text(&row.case),
        text(&row.preset),
        row.batch.map_or_else(|| "-".to_owned(), |batch| batch.to_string()),
        mib(row.first_persistent_mib),
        mib(row.step_growth_mib),
        mib(row.forward_increase_mib),
        mib(row.peak_mib),
    ]
}

/// Names to the left, numbers to the right.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    const NAMES: usize = 3;
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < NAMES { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn phases(text: &mut String, path: &Path, report: &Report) {
    for rank in &report.rank_reports {
        let records = report.records(rank);
        let last = records.iter().filter_map(|record| record.step).max();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{} rank {}", path.display(), rank.rank);
        let mut rows =
            vec![["phase", "", "", "step", "allocated MiB", "peak MiB"].map(str::to_owned)];
        for record in &records {
            if record.step.is_some_and(|step| step != 0 && Some(step) != last) {
                continue;
            }
            let mib = |value: Option<u64>| {
                value.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", to_mib(bytes)))
            };
            rows.push([
                record.phase.to_string(),
                String::new(),
                String::new(),
                record.step.map_or_else(|| "before".to_owned(), |step| step.to_string()),
                mib(record.end.allocated),
                mib(record.peak_allocated),
            ]);
        }
        text.push_str(&table(&rows));
    }
}
