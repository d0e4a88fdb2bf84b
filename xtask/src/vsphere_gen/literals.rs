//! Reads one line of pyVmomi's tables: a call of a function with literal arguments. No Python runs.

use anyhow::{Context, Result, bail};

/// A Python literal. Tuples and lists are the same to us; names of flags are numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    Text(String),
    Number(u32),
    Nothing,
    List(Vec<Self>),
}

/// Set in the flags of a field that may be left out.
pub(crate) const OPTIONAL: u32 = 4;

/// What pyVmomi calls numbers.
const FLAGS: &[(&str, u32)] = &[
    ("F_LINK", 1),
    ("F_LINKABLE", 2),
    ("F_OPTIONAL", OPTIONAL),
    ("F_SECRET", 8),
    ("True", 1),
    ("False", 0),
];

/// The function's name and the arguments; nothing for lines that are no calls.
pub(crate) fn call(line: &str) -> Result<Option<(&str, Vec<Literal>)>> {
    let Some((name, rest)) = line.trim().split_once('(') else { return Ok(None) };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    if name.is_empty() || !name.chars().all(is_name) || !rest.ends_with(')') {
        return Ok(None);
    }
    let mut rest = rest;
    let arguments = list(&mut rest, ')').with_context(|| format!("the call of {name}"))?;
    Ok(Some((name, arguments)))
}

/// Reads values up to the closing character and takes that off, too.
fn list(rest: &mut &str, closing: char) -> Result<Vec<Literal>> {
    let mut values = Vec::new();
    loop {
        *rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix(closing) {
            *rest = after;
            return Ok(values);
        }
        values.push(value(rest, closing)?);
    }
}

fn value(rest: &mut &str, closing: char) -> Result<Literal> {
    if let Some(after) = rest.strip_prefix('(') {
        *rest = after;
        return Ok(Literal::List(list(rest, ')')?));
    }
    if let Some(after) = rest.strip_prefix('[') {
        *rest = after;
        return Ok(Literal::List(list(rest, ']')?));
    }
    if let Some(after) = rest.strip_prefix('"') {
        let (text, after) = after.split_once('"').context("a string has no end")?;
        *rest = after;
        return Ok(Literal::Text(text.to_owned()));
    }
    let Some(end) = rest.find([',', ')', ']']) else { bail!("a list has no `{closing}`") };
    let (word, after) = rest.split_at(end);
    *rest = after;
    match word.trim() {
        "None" => Ok(Literal::Nothing),
        flags => Ok(Literal::Number(
            flags.split('|').map(number).try_fold(0, |sum, flag| flag.map(|flag| sum | flag))?,
        )),
    }
}

fn number(word: &str) -> Result<u32> {
    let word = word.trim();
    let named = FLAGS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    named.or_else(|| word.parse().ok()).with_context(|| format!("`{word}` is unknown"))
}

impl Literal {
    /// The text of a string; empty for anything else, as the tables write None where a name may be absent.
    pub(crate) fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// The values of a list; empty for anything else.
    pub(crate) fn list(&self) -> &[Self] {
        if let Self::List(values) = self { values } else { &[] }
    }

    pub(crate) fn number(&self) -> u32 {
        if let Self::Number(number) = self { *number } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_python_literals() {
        let line = r#"Create("a.b", None, [("f", "int[]", 0, F_OPTIONAL | F_SECRET), ], ())"#;
        let (name, arguments) = call(line).unwrap().unwrap();
        assert_eq!(name, "Create");
        let text = |text: &str| Literal::Text(text.to_owned());
        let field =
            Literal::List(vec![text("f"), text("int[]"), Literal::Number(0), Literal::Number(12)]);
        let fields = Literal::List(vec![field]);
        assert_eq!(arguments, [text("a.b"), Literal::Nothing, fields, Literal::List(Vec::new())]);
    }

    #[test]
    fn other_lines_are_no_calls() {
        for line in ["", "# Create(1)", "from .VmomiSupport import CreateDataType", "x = f(1)"] {
            assert_eq!(call(line).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn broken_calls_are_errors() {
        for line in [r#"f("a)"#, "f([1)", "f(unknown)"] {
            assert!(call(line).is_err(), "{line}");
        }
    }
}
