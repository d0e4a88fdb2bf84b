//! Problems of a file: place, key, reason and remedy.
//!
//! Reading does not stop at the first mistake: all are reported at once. Values of secret keys are never quoted.

use std::fmt;

/// A place in a text, both counted from one; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The place after a text.
    pub(crate) fn after(text: &str) -> Self {
        let line = text.matches('\n').count() + 1;
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column }
    }
}

/// One mistake or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file; `environment` for variables, and the name of the Secret for its keys.
    pub file: String,
    /// Where in the file, if it is about a place.
    pub position: Option<Position>,
    /// The key as the user wrote it with its section; empty if no key is concerned.
    pub key: String,
    /// What is wrong.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

/// Why a file was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// What must change.
    pub list: Vec<Problem>,
    /// They often explain the rest.
    pub warnings: Vec<Problem>,
}

impl Problem {
    fn write(&self, f: &mut fmt::Formatter<'_>, mark: &str) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {mark}")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.text, self.remedy)
    }
}

/// `FILE:LINE:COLUMN: key: problem; remedy`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

/// One line each, warnings after the rest and marked.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = self.warnings.iter().map(|warning| (warning, "warning: "));
        let all = self.list.iter().map(|problem| (problem, "")).chain(marked);
        for (at, (problem, mark)) in all.enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            problem.write(f, mark)?;
        }
        Ok(())
    }
}

/// Where a setting was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A place in the file.
    File(Position),
    /// The file, but no place in it.
    Whole,
    /// A variable of the environment; the key is its name.
    Environment,
}

/// What is wrong at a place, and what to do about it.
pub(crate) struct Mistake {
    pub(crate) at: Place,
    pub(crate) text: &'static str,
    pub(crate) remedy: &'static str,
}

/// Collects problems while a file is read.
#[derive(Debug)]
pub(crate) struct Report {
    file: String,
    strict: bool,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Report {
    /// A strict one refuses unknown names.
    pub(crate) fn new(file: &str, strict: bool) -> Self {
        Self { file: file.to_owned(), strict, problems: Vec::new(), warnings: Vec::new() }
    }

    fn problem(&self, place: Place, key: &str, text: String, remedy: String) -> Problem {
        let (file, position) = match place {
            Place::File(position) => (self.file.clone(), Some(position)),
            Place::Whole => (self.file.clone(), None),
            Place::Environment => ("environment".to_owned(), None),
        };
        Problem { file, position, key: key.to_owned(), text, remedy }
    }

    /// Whether anything must change, as far as is known.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Something that must change.
    pub(crate) fn refuse(
        &mut self,
        place: Place,
        key: &str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = self.problem(place, key, text.into(), remedy.into());
        self.problems.push(problem);
    }

    pub(crate) fn refuse_mistake(&mut self, key: &str, Mistake { at, text, remedy }: Mistake) {
        self.refuse(at, key, text, remedy);
    }

    /// Something that works, but not as its author may think.
    pub(crate) fn warn(
        &mut self,
        place: Place,
        key: &str,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = self.problem(place, key, text.into(), remedy.into());
        self.warnings.push(problem);
    }

    /// An unknown name.
    pub(crate) fn unknown(
        &mut self,
        place: Place,
        key: &str,
        text: &str,
        remedy: impl Into<String>,
    ) {
        if self.strict {
            self.refuse(place, key, text, remedy);
        } else {
            self.warn(place, key, format!("{text}, so it is ignored"), remedy);
        }
    }

    /// The value with the warnings, or everything that is wrong, in the order of the file.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<(T, Vec<Problem>), Problems> {
        self.problems.sort_by_key(|problem| problem.position);
        self.warnings.sort_by_key(|problem| problem.position);
        // Several vCenters may inherit the same problem.
        self.problems.dedup();
        self.warnings.dedup();
        match value {
            Some(value) if self.problems.is_empty() => Ok((value, self.warnings)),
            _ => Err(Problems { list: self.problems, warnings: self.warnings }),
        }
    }
}
