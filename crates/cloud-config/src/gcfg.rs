//! The INI dialect of `vsphere.conf`: that of Go's gcfg, to the letter.
//!
//! ```ini
//! ; a comment; so is what follows a # or ; outside quotes
//! [Global]                       # names of sections and variables are case-insensitive
//! password = "a \"b\" \\ \n \t"  # inside quotes: \" \\ \n \t and no other escape
//! user = one\"two                # outside quotes a backslash precedes a quote or a line's end, nothing else
//! datacenters = dc-1, \
//!     dc-2                       # a continued line keeps its blanks
//! insecure-flag                  # a variable without `=` is true
//! [VirtualCenter "10.0.0.1"]     # subsections are case-sensitive; inside them only \" and \\
//! ```
//!
//! A repeated variable replaces the earlier one, a repeated section continues the earlier one; both are up
//! to the caller, this module returns everything in order. Trailing blanks outside quotes do not
//! count, carriage returns never do. Unlike gcfg this parser continues after a mistake.

use std::{iter::Peekable, mem, str::Chars};

use crate::{
    document::{Block, Item, Located, Value},
    problem::{Mistake, Place, Position, Report},
};

const NAME_FIRST: &str = "a line must be [Section], [Section \"name\"], key = value or a comment";

/// All sections with their variables; mistakes go into the report.
pub(crate) fn parse(text: &str, report: &mut Report) -> Vec<Block> {
    if let Some(index) = text.find('\0') {
        let at = Place::File(Position::after(&text[..index]));
        report.refuse(at, "", "the text contains a NUL character", "remove it");
    }
    let mut scanner = Scanner { rest: text.chars().peekable(), line: 1, column: 1 };
    let mut blocks: Vec<Block> = Vec::new();
    // The variables below a header that could not be read are skipped without a message of their own.
    let mut lost = false;
    while let Some(next) = scanner.peek_past_blanks() {
        let at = scanner.place();
        let outcome = match next {
            '\n' | '#' | ';' => {
                scanner.skip_line();
                scanner.take();
                Ok(())
            }
            '[' => scanner.header().map(|block| blocks.push(block)).inspect(|()| lost = false),
            letter if letter.is_alphabetic() => {
                let item = scanner.variable(report);
                match blocks.last_mut() {
                    _ if lost => {}
                    Some(block) => block.items.push(item),
                    None => {
                        let remedy = "begin the file with a section such as [Global]";
                        report.refuse(at, "", "this line precedes the first section", remedy);
                    }
                }
                Ok(())
            }
            _ => {
                Err(Mistake { at, text: "no section or key begins like this", remedy: NAME_FIRST })
            }
        };
        if let Err(mistake) = outcome {
            lost |= next == '[';
            report.refuse_mistake("", mistake);
            scanner.skip_line();
        }
    }
    blocks
}

struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    column: usize,
}

impl Scanner<'_> {
    fn place(&self) -> Place {
        Place::File(Position { line: self.line, column: self.column })
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn take(&mut self) -> Option<char> {
        let taken = self.rest.next()?;
        if taken == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(taken)
    }

    fn peek_past_blanks(&mut self) -> Option<char> {
        while matches!(self.peek(), Some(' ' | '\t' | '\r')) {
            self.take();
        }
        self.peek()
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|next| next != '\n') {
            self.take();
        }
    }

    /// Whether only a comment is left of this line.
    fn at_end(&mut self) -> bool {
        matches!(self.peek_past_blanks(), None | Some('\n' | '#' | ';'))
    }

    fn mistake(&self, text: &'static str, remedy: &'static str) -> Mistake {
        Mistake { at: self.place(), text, remedy }
    }

    fn name(&mut self) -> Located {
        let at = self.place();
        let mut text = String::new();
        while let Some(next) = self.peek()
            && (next.is_alphanumeric() || next == '-')
        {
            text.push(next);
            self.take();
        }
        Located { text, at }
    }

    fn header(&mut self) -> Result<Block, Mistake> {
        self.take();
        if !self.peek_past_blanks().is_some_and(char::is_alphabetic) {
            return Err(self.mistake("a section has no name", "write it as [Global]"));
        }
        let name = self.name();
        let subsection = match self.peek_past_blanks() {
            Some('"') => Some(self.subsection()?),
            _ => None,
        };
        if self.peek_past_blanks() != Some(']') {
            return Err(self.mistake(
                "the header of a section does not end here",
                "write it as [Section] or [Section \"name\"]",
            ));
        }
        self.take();
        if !self.at_end() {
            return Err(self.mistake(
                "something follows the header of a section",
                "begin a new line after the bracket",
            ));
        }
        Ok(Block { name, subsection, items: Vec::new() })
    }

    fn subsection(&mut self) -> Result<Located, Mistake> {
        let at = self.place();
        self.take();
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|next| *next != '\n') {
            self.take();
            match next {
                '"' if text.is_empty() => {
                    let remedy = "put the name between the quotes, or leave the quotes out";
                    return Err(Mistake { at, text: "the name of a section is empty", remedy });
                }
                '"' => return Ok(Located { text, at }),
                '\\' => match self.peek() {
                    Some(escaped @ ('"' | '\\')) => {
                        text.push(escaped);
                        self.take();
                    }
                    _ => {
                        return Err(self.mistake(
                            "a backslash in the name of a section precedes neither a quote nor a backslash",
                            "write a backslash as \\\\",
                        ));
                    }
                },
                other => text.push(other),
            }
        }
        Err(Mistake {
            at,
            text: "the quoted name of a section does not end in this line",
            remedy: "close it with a double quote",
        })
    }

    fn variable(&mut self, report: &mut Report) -> Item {
        let name = self.name();
        if self.at_end() {
            let at = name.at;
            return Item { name, value: Value::Blank, at };
        }
        let mut at = self.place();
        let value = if self.peek() == Some('=') {
            self.take();
            self.peek_past_blanks();
            at = self.place();
            self.value().map(|(text, cut)| {
                if let Some(at) = cut {
                    let remedy = "put the value in double quotes if this belongs to it, or a blank before it if not";
                    report.warn(at, &name.text, "the value ends here, and a comment begins", remedy);
                }
                text
            })
        } else {
            Err(self.mistake("there is no `=` after the key", "write it as key = value"))
        };
        let value = match value {
            Ok(text) => Value::Text(text),
            Err(mistake) => {
                report.refuse_mistake(&name.text, mistake);
                self.skip_line();
                Value::Broken
            }
        };
        Item { name, value, at }
    }

    /// The value, and where a comment begins right behind it: people forget to put passwords in quotes.
    fn value(&mut self) -> Result<(String, Option<Place>), Mistake> {
        let mut text = String::new();
        // Whether the last character was of the value, outside quotes.
        let mut bare = false;
        // How much of the text counts: blanks at the end do not.
        let mut kept = 0;
        let mut quote: Option<Place> = None;
        loop {
            let at = self.place();
            let was_bare = mem::take(&mut bare);
            match (self.peek(), quote) {
                (None | Some('\n'), Some(at)) => {
                    return Err(Mistake {
                        at,
                        text: "a quoted value does not end in this line",
                        remedy: "close it with a double quote; a quote inside it is written \\\"",
                    });
                }
                (next @ (None | Some('\n' | '#' | ';')), None) => {
                    text.truncate(kept);
                    let comment = next.is_some_and(|next| next != '\n');
                    return Ok((text, (was_bare && comment).then_some(at)));
                }
                (Some('\\'), _) => {
                    self.take();
                    text.extend(self.escape(at, quote.is_some())?);
                    kept = text.len();
                    continue;
                }
                (Some('"'), Some(_)) => {
                    quote = None;
                    kept = text.len();
                }
                (Some('"'), None) => quote = Some(at),
                (Some('\r'), _) => {}
                (Some(other), _) => {
                    text.push(other);
                    let blank = matches!(other, ' ' | '\t');
                    if quote.is_some() || !blank {
                        kept = text.len();
                    }
                    bare = quote.is_none() && !blank;
                }
            }
            self.take();
        }
    }

    /// What a backslash and its successor stand for; the backslash is already taken.
    fn escape(&mut self, at: Place, quoted: bool) -> Result<Option<char>, Mistake> {
        if !quoted && self.peek() == Some('\r') {
            self.take();
        }
        let meant = match (self.peek(), quoted) {
            (Some('"'), _) => Some('"'),
            (Some('\\'), true) => Some('\\'),
            (Some('n'), true) => Some('\n'),
            (Some('t'), true) => Some('\t'),
            (Some('\n'), false) => None,
            (_, true) => {
                return Err(Mistake {
                    at,
                    text: "a backslash inside quotes must precede \", \\, n or t",
                    remedy: "write a backslash as \\\\",
                });
            }
            (_, false) => {
                return Err(Mistake {
                    at,
                    text: "a backslash outside quotes must precede a double quote or end the line",
                    remedy: "put the value in double quotes and write each backslash in it as \\\\",
                });
            }
        };
        self.take();
        Ok(meant)
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, Value, parse};

    fn plain(text: &str) -> String {
        let mut letters = text.chars();
        let mut plain = String::new();
        while let Some(letter) = letters.next() {
            plain.push(match letter {
                '\\' => match letters.next().unwrap() {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                },
                other => other,
            });
        }
        plain
    }

    /// User, password and server of the global section; None if the text, or one of them, has no meaning.
    fn global(text: &str) -> Option<[String; 3]> {
        let mut report = Report::new("f", false);
        let mut values = [const { String::new() }; 3];
        for block in parse(text, &mut report) {
            let vcenter = block.name.text.eq_ignore_ascii_case("virtualcenter");
            let global = block.name.text.eq_ignore_ascii_case("global");
            let known: &[&str] = match (vcenter, global && block.subsection.is_none()) {
                (true, _) => &["user", "password"],
                (_, true) => &["user", "password", "server"],
                _ => &[],
            };
            for item in block.items {
                let name = item.name.text.to_lowercase();
                match (known.iter().position(|it| *it == name), item.value) {
                    (None, _) => {}
                    (Some(at), Value::Text(text)) if global => values[at] = text,
                    (Some(_), Value::Text(_)) => {}
                    (Some(_), _) => return None,
                }
            }
        }
        Some(values).filter(|_| !report.has_problems())
    }

    #[test]
    fn texts_mean_what_gcfg_recorded() {
        let table = include_str!("../tests/data/gcfg.txt");
        let mut cases = 0;
        for line in table.lines().filter(|line| !line.starts_with("# ")) {
            let fields: Vec<String> = line.split('\t').map(plain).collect();
            let wanted = match &fields[1..] {
                [user, password, server] => Some([user, password, server].map(String::clone)),
                _ => None,
            };
            assert_eq!(global(&fields[0]), wanted, "{:?}", fields[0]);
            cases += 1;
        }
        assert!(cases >= 300, "only {cases} cases");
    }
}
