//! Where a Go test failed: by an assertion of its own, or in what prepares it.

use std::fs;

use super::test_run::Test;

/// Refuses a failure that says nothing about the test: one outside of its function, or in the lines that start its
/// vCenter. Helpers count as the line that calls them, as Go reports them.
pub(super) fn check(test: &Test, message: &str) -> Result<(), String> {
    let Some((file, line)) = messages(message).next().and_then(place) else {
        return Err(format!("fails without a message of its own:\n{message}"));
    };
    let path = test.program.directory.join(file);
    let source = fs::read_to_string(&path)
        .map_err(|error| format!("fails in {}: {error}", path.display()))?;
    check_line(&source, &test.name, line).map_err(|how| format!("{how}:\n{message}"))
}

/// What the test itself printed: lines with a file of tests and a line, without the log of the simulator.
pub(super) fn messages(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.starts_with(' ') && place(line).is_some())
}

/// The file and the line, counted from one, of `    busy_test.go:7: waits`.
fn place(line: &str) -> Option<(&str, usize)> {
    let (file, rest) = line.trim_start().split_once(':')?;
    let (number, _) = rest.split_once(':')?;
    Some((file, number.parse().ok()?)).filter(|_| file.ends_with("_test.go"))
}

fn check_line(source: &str, test: &str, line: usize) -> Result<(), String> {
    let mut own = source
        .lines()
        .enumerate()
        .skip_while(|(_, text)| !text.starts_with(&format!("func {test}(")))
        .take_while(|(_, text)| *text != "}")
        .skip(1);
    let Some((_, text)) = own.find(|(index, _)| index + 1 == line) else {
        return Err(format!("fails in line {line}, outside of its function"));
    };
    // What takes the test as its argument prepares it: newLab(t, …), login(t).
    if text.contains("(t,") || text.contains("(t)") {
        return Err(format!("fails in its preparation, `{}`", text.trim()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "package cns\n\nfunc TestBusy(t *testing.T) {\n\tl := newLab(t, options{})\n\
                          \tl.wantFault(l.attach())\n}\n\nfunc TestBusyHost(t *testing.T) {\n\tt.Error(\"x\")\n}\n";

    #[test]
    fn only_an_assertion_in_the_test_counts() {
        assert_eq!(check_line(SOURCE, "TestBusy", 5), Ok(()));
        let outside = check_line(SOURCE, "TestBusy", 9).unwrap_err();
        assert_eq!(outside, "fails in line 9, outside of its function");
        let preparation = check_line(SOURCE, "TestBusy", 4).unwrap_err();
        assert_eq!(preparation, "fails in its preparation, `l := newLab(t, options{})`");
    }

    #[test]
    fn the_log_of_a_simulator_is_no_message_of_the_test() {
        let output = "=== RUN   TestBusy\n    busy_test.go:5: no fault\n    other.go:7: x\n--- FAIL: TestBusy (0.01s)\n\
                      2026/11/18 15:00:00 busy_test.go:9: x";
        let found: Vec<&str> = messages(output).collect();
        assert_eq!(found, ["    busy_test.go:5: no fault"]);
        assert_eq!(place(found[0]), Some(("busy_test.go", 5)));
    }
}
