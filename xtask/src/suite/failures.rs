//! Which tests failed, why, and how to run each again: read from the output of test programs.

use std::fmt;

/// Longer messages are cut: the whole output is above the report.
const LINES: usize = 30;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    test: String,
    /// What the test printed from its panic on, without backtraces.
    message: String,
    /// Runs it again.
    command: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, message, command } = self;
        writeln!(out, "✗ {test}")?;
        for line in message.lines() {
            writeln!(out, "    {line}")?;
        }
        write!(out, "  {command}")
    }
}

/// Reads standard output and error of the test program that `command` runs, in the order in which they were written.
pub(crate) fn read(output: &str, command: &str) -> Vec<Failure> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut in_section = false;
    for line in output.lines() {
        if let Some(test) = title(line) {
            found.push((test, Vec::new()));
            in_section = true;
        } else if line == "failures:" {
            in_section = false;
        } else if in_section && let Some((_, lines)) = found.last_mut() {
            lines.push(line);
        }
    }
    let failure = |(test, lines): (&str, Vec<&str>)| {
        // Examples in the documentation are named by their place, with spaces.
        let quoted = if test.contains(' ') { format!("'{test}'") } else { test.to_owned() };
        Failure {
            test: test.to_owned(),
            message: message(&lines),
            command: format!("{command} -- --exact {quoted}"),
        }
    };
    found.into_iter().map(failure).collect()
}

/// Of a program that named no failed test: what it printed last.
pub(crate) fn unnamed(output: &str, command: &str) -> Failure {
    let lines: Vec<&str> = output.trim().lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let command = command.to_owned();
    Failure { test: command.clone(), message: last.join("\n"), command }
}

/// The message of the first test that failed, in the output of one test program.
pub(crate) fn message_of(output: &str) -> Option<String> {
    let section = output.lines().skip_while(|line| title(line).is_none()).skip(1);
    let lines: Vec<&str> = section.take_while(|line| *line != "failures:").collect();
    (!lines.is_empty()).then(|| message(&lines))
}

/// The test whose output begins with this line.
fn title(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// From the panic on, without backtraces and hints how to get one.
fn message(lines: &[&str]) -> String {
    let panic =
        lines.iter().position(|line| line.starts_with("thread '") && line.contains("panicked at"));
    let mut kept = Vec::new();
    let mut in_backtrace = false;
    for line in lines.get(panic.unwrap_or(0)..).unwrap_or_default() {
        if line.trim_start().eq_ignore_ascii_case("stack backtrace:") {
            in_backtrace = true;
        } else if line.starts_with("thread '") || !line.starts_with(' ') && !line.is_empty() {
            in_backtrace = false;
        }
        if !in_backtrace && !line.starts_with("note: ") {
            kept.push(*line);
        }
    }
    let text = kept.join("\n");
    let mut lines: Vec<&str> = text.trim().lines().collect();
    if lines.len() > LINES {
        lines.truncate(LINES);
        lines.push("…");
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests
test fine ... ok
test wrong::sum ... FAILED

failures:

---- wrong::sum stdout ----
a line that the test printed
thread 'wrong::sum' (4711) panicked at crates/one/src/lib.rs:3:9:
assertion `left == right` failed
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    wrong::sum

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test api_is_ready ... FAILED

failures:

---- api_is_ready stdout ----
thread 'api_is_ready' panicked at tests/all.rs:9:50:
called `Result::unwrap()` on an `Err` value: the API is not ready

Caused by:
    connection refused

Stack backtrace:
   0: anyhow::error::<impl core::convert::From<E> for anyhow::Error>::from
             at /anyhow/src/backtrace.rs:10:14
   1: all::api_is_ready::{{closure}}
stack backtrace:
   0: __rustc::rust_begin_unwind
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.


failures:
    api_is_ready

";

    #[test]
    fn a_report_has_the_message_and_the_command_but_no_backtrace() {
        let report: Vec<String> =
            read(OUTPUT, "cargo test -p one --test all").iter().map(ToString::to_string).collect();
        assert_eq!(
            report,
            [
                "✗ wrong::sum
    thread 'wrong::sum' (4711) panicked at crates/one/src/lib.rs:3:9:
    assertion `left == right` failed
      left: 1
     right: 2
  cargo test -p one --test all -- --exact wrong::sum",
                "✗ api_is_ready
    thread 'api_is_ready' panicked at tests/all.rs:9:50:
    called `Result::unwrap()` on an `Err` value: the API is not ready
    
    Caused by:
        connection refused
  cargo test -p one --test all -- --exact api_is_ready",
            ]
        );
    }

    #[test]
    fn the_message_of_one_test_program_ends_with_its_section() {
        let message = message_of(OUTPUT).unwrap();
        assert!(message.starts_with("thread 'wrong::sum'"), "{message}");
        assert!(message.ends_with(" right: 2"), "{message}");
        assert_eq!(message_of("running 1 test\ntest fine ... ok\n"), None);
    }

    #[test]
    fn a_run_without_failures_has_none() {
        assert_eq!(read("running 1 test\ntest fine ... ok\n", "cargo test -p one --lib"), []);
    }
}
