//! The writer: elements in the order they are given, fields that the server does not know left out.

use std::fmt::Write as _;

use crate::version::{Release, Since};

/// Writes a request for one release of the server.
#[derive(Debug)]
pub struct Writer {
    text: String,
    release: Release,
}

impl Writer {
    /// An empty document for a server of this release.
    pub fn new(release: Release) -> Self {
        Self { text: String::with_capacity(1024), release }
    }

    /// Whether the server knows what came with `since`.
    pub fn knows(&self, since: Since) -> bool {
        self.release.knows(since)
    }

    /// `<name>`
    pub fn open(&mut self, name: &str) {
        self.open_with(name, &[]);
    }

    /// `<name attribute="value">`
    pub fn open_with(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            self.text.push(' ');
            self.text.push_str(key);
            self.text.push_str("=\"");
            self.escaped(value);
            self.text.push('"');
        }
        self.text.push('>');
    }

    /// `</name>`
    pub fn close(&mut self, name: &str) {
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// `<name>text</name>`
    pub fn leaf(&mut self, name: &str, text: &str) {
        self.open(name);
        self.escaped(text);
        self.close(name);
    }

    /// `<name>value</name>` of something that needs no escapes.
    pub(super) fn plain(&mut self, name: &str, value: impl std::fmt::Display) {
        self.open(name);
        // A String takes everything that is written to it.
        self.text.write_fmt(format_args!("{value}")).unwrap_or_default();
        self.close(name);
    }

    /// Text with escapes.
    pub fn escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                // A parser turns a bare carriage return into a line feed, and both into blanks in attributes.
                '\r' => self.text.push_str("&#13;"),
                '\n' => self.text.push_str("&#10;"),
                '\t' => self.text.push_str("&#9;"),
                other => self.text.push(other),
            }
        }
    }

    /// Text that is XML already: the parts of an envelope that never change, and tokens.
    pub(crate) fn verbatim(&mut self, xml: &str) {
        self.text.push_str(xml);
    }

    /// The document.
    pub fn finish(self) -> String {
        self.text
    }
}
