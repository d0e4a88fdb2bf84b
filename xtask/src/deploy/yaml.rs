//! JSON values as YAML for people: blocks instead of braces, quotes only where something could be mistaken.

use serde_json::Value;

/// The value as one document. Keys come in the order of Kubernetes' conventions, then by the alphabet.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

/// Writes a value at the begin of a line.
fn block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_by_key(|name| (rank(name), *name));
            for name in names {
                indent(out, depth);
                out.push_str(&scalar(name));
                out.push(':');
                nested(out, &fields[name], depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(out, depth);
                out.push('-');
                element(out, item, depth);
            }
        }
        other => {
            indent(out, depth);
            out.push_str(&inline(other));
            out.push('\n');
        }
    }
}

/// Writes what comes after a name and its colon.
fn nested(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            block(out, value, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(out, value, depth + 1);
        }
        Value::String(text) if is_literal(text) => {
            out.push_str(" |\n");
            for line in text.lines() {
                if !line.is_empty() {
                    indent(out, depth + 1);
                }
                out.push_str(line);
                out.push('\n');
            }
        }
        other => {
            out.push(' ');
            out.push_str(&inline(other));
            out.push('\n');
        }
    }
}

/// Writes what comes after a dash: the first line of the block stands beside it.
fn element(out: &mut String, value: &Value, depth: usize) {
    let mut lines = String::new();
    block(&mut lines, value, depth + 1);
    out.push(' ');
    out.push_str(lines.trim_start_matches(' '));
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Names that people look for first.
fn rank(name: &str) -> usize {
    const FIRST: [&str; 6] = ["apiVersion", "kind", "metadata", "name", "namespace", "key"];
    FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len())
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // JSON is YAML.
        other => other.to_string(),
    }
}

/// A text of several lines that a literal block keeps as it is.
fn is_literal(text: &str) -> bool {
    let printable = |letter: char| letter == '\n' || (' '..='~').contains(&letter);
    text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n'])
        && text.chars().all(printable)
}

/// Plain if nobody could take it for anything else, quoted as in JSON otherwise.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.ends_with(|last: char| last != ':')
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./@:".contains(letter))
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    let plain =
        plain || (text.starts_with("--") && text.len() > 3 && !text.contains([' ', '#', ':']));
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same() {
        let value = json!({
            "kind": "Example",
            "empty": {}, "none": [], "nothing": null, "yes": true, "number": 10258, "ratio": 0.5,
            "list": ["a", "true", "-1", "1", "", " x", "a: b", "# no", "--v=2", "---", "--", "- x", "10.0.0.1", "a:", "~", "=", "<<"],
            "nested": [[1, [2, 3]], {"a": [{"b": {"c": "d"}}], "e": "f"}, []],
            "text": "one\n  two\n\nthree\n", "no end": "one\ntwo", "odd": "ä\u{7}\u{2028}\n", "lead": " x\ny\n",
            "quoted \"key\"": "a\tb", "node.kubernetes.io/not-ready": "100m", "at": "a@b", "null": "null", "1e3": "1e3",
        });
        let text = document(&value);
        let read: Value =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read, value, "{text}");
    }

    #[test]
    fn a_document_reads_as_people_write_it() {
        let value = json!({"spec": {"args": ["--v=2"], "env": [{"value": "1", "name": "A"}]}, "kind": "Pod"});
        let expected =
            "kind: Pod\nspec:\n  args:\n    - --v=2\n  env:\n    - name: A\n      value: \"1\"\n";
        assert_eq!(document(&value), expected);
    }
}
