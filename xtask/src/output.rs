//! What the commands print: results to standard output, the rest to standard error, tables by columns.

use std::io::{self, Write};

/// Prints a line. A reader that went away (`| head`) is not an error of ours.
pub(crate) fn print_line(text: &str) {
    writeln!(io::stdout().lock(), "{text}").ok();
}

/// Prints a line to standard error.
pub(crate) fn print_error(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Lines up columns as kubectl does: left-aligned, three spaces between.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["NAME", "STATE"]), row(["kube-apiserver", "running"])];
        assert_eq!(table(&rows), "NAME             STATE\nkube-apiserver   running");
    }
}
