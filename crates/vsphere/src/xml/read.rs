//! The pull reader: one element at a time, no tree.
//!
//! What a type does not take from an element is skipped when the next child of its parent is read, so that
//! elements of newer servers cannot break the reading of older fields.

use std::borrow::Cow;

use quick_xml::{
    escape::{resolve_predefined_entity, unescape},
    events::{BytesRef, BytesStart, Event},
};

/// Deeper than any answer of vCenter. Readers of recursive types recurse, so depth is stack.
const DEEPEST: usize = 100;

/// What the server sent is not the XML we agreed on.
#[derive(Debug, Clone, thiserror::Error)]
#[error("malformed answer at byte {at}: {problem}")]
pub struct Malformed {
    problem: String,
    at: u64,
}

impl Malformed {
    /// Something that should be in an answer is not.
    pub(crate) fn new(problem: &str) -> Self {
        Self { problem: problem.to_owned(), at: 0 }
    }
}

/// Reads a document element by element.
pub struct Reader<'a> {
    events: quick_xml::Reader<&'a [u8]>,
    /// How many elements are open.
    depth: usize,
}

/// An element whose start tag has been read.
#[derive(Debug)]
pub struct Element<'a> {
    start: BytesStart<'a>,
    /// The reader's depth inside it.
    depth: usize,
}

impl<'a> Reader<'a> {
    /// A reader in front of the document's root.
    pub fn new(document: &'a str) -> Self {
        let mut events = quick_xml::Reader::from_str(document);
        events.config_mut().expand_empty_elements = true;
        Self { events, depth: 0 }
    }

    /// The root element.
    pub fn root(&mut self) -> Result<Element<'a>, Malformed> {
        loop {
            match self.event()? {
                Event::Start(start) => return self.entered(start),
                Event::Eof => return Err(self.malformed("the document is empty")),
                _ => {}
            }
        }
    }

    /// The next child of `parent`, or nothing at its end. Skips what is left of the child before.
    pub fn child(&mut self, parent: &Element<'_>) -> Result<Option<Element<'a>>, Malformed> {
        while self.depth >= parent.depth {
            match self.event()? {
                Event::Start(start) => {
                    let element = self.entered(start)?;
                    if element.depth == parent.depth + 1 {
                        return Ok(Some(element));
                    }
                }
                Event::End(_) => self.depth -= 1,
                Event::Eof => return Err(self.malformed("the document ends too early")),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The first child of `parent` with this local name.
    pub fn find(
        &mut self,
        parent: &Element<'_>,
        name: &str,
    ) -> Result<Option<Element<'a>>, Malformed> {
        while let Some(child) = self.child(parent)? {
            if child.name() == name {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// The text of an element, to its end; elements in between are skipped.
    pub fn text(&mut self, of: &Element<'_>) -> Result<Cow<'a, str>, Malformed> {
        Ok(self.text_or_children(of, |_, _| Ok(()))?.0)
    }

    /// For elements that may hold either: calls `take` for each child, or returns the text if there is none.
    pub(crate) fn text_or_children(
        &mut self,
        of: &Element<'_>,
        mut take: impl FnMut(&mut Self, &Element<'a>) -> Result<(), Malformed>,
    ) -> Result<(Cow<'a, str>, bool), Malformed> {
        let (mut text, mut children) = (Cow::Borrowed(""), false);
        while self.depth >= of.depth {
            let here = self.depth == of.depth;
            match self.event()? {
                Event::Text(piece) if here => text += piece.into_inner(),
                Event::CData(piece) if here => text += piece.into_inner(),
                Event::GeneralRef(reference) if here => text += self.resolve(&reference)?,
                Event::Start(start) => {
                    let element = self.entered(start)?;
                    if here {
                        children = true;
                        take(self, &element)?;
                    }
                }
                Event::End(_) => self.depth -= 1,
                Event::Eof => return Err(self.malformed("the document ends too early")),
                _ => {}
            }
        }
        Ok((text, children))
    }

    /// The element as text, tags included, to be read later.
    pub(crate) fn fragment(&mut self, of: &Element<'_>) -> Result<String, Malformed> {
        let name = of.start.name();
        let inner =
            self.events.read_text(name).map_err(|error| self.malformed(error.to_string()))?;
        self.depth = of.depth - 1;
        let (name, attributes) = (name.into_inner(), of.start.attributes_raw());
        Ok(format!("<{name}{attributes}>{}</{name}>", inner.into_inner()))
    }

    /// An error at this place of the document.
    pub fn malformed(&self, problem: impl Into<String>) -> Malformed {
        Malformed { problem: problem.into(), at: self.events.buffer_position() }
    }

    fn event(&mut self) -> Result<Event<'a>, Malformed> {
        self.events.read_event().map_err(|error| self.malformed(error.to_string()))
    }

    fn entered(&mut self, start: BytesStart<'a>) -> Result<Element<'a>, Malformed> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.malformed(format!("more than {DEEPEST} elements inside each other")));
        }
        if let Some(problem) = broken_attribute(&start) {
            return Err(self.malformed(problem));
        }
        Ok(Element { start, depth: self.depth })
    }

    fn resolve(&self, reference: &BytesRef<'_>) -> Result<Cow<'static, str>, Malformed> {
        let character =
            reference.resolve_char_ref().map_err(|error| self.malformed(error.to_string()))?;
        if let Some(character) = character {
            return Ok(Cow::Owned(character.to_string()));
        }
        let name = reference.clone().into_inner();
        resolve_predefined_entity(&name)
            .map(Cow::Borrowed)
            .ok_or_else(|| self.malformed(format!("unknown entity &{name};")))
    }
}

/// The parser reads attributes lazily. A type that cannot be read must not count as absent.
fn broken_attribute(start: &BytesStart<'_>) -> Option<String> {
    let mut attributes = start.attributes();
    attributes.with_checks(false).find_map(|attribute| match attribute {
        Ok(attribute) if !attribute.value.contains('&') => None,
        Ok(attribute) => unescape(&attribute.value).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    })
}

impl Element<'_> {
    /// The name without prefix.
    pub fn name(&self) -> &str {
        self.start.local_name().into_inner()
    }

    /// The value of `xsi:type` without prefixes; servers differ in the prefix they bind.
    pub fn xsi_type(&self) -> Option<Cow<'_, str>> {
        let declared = self.attribute(|key| is_qualified(key, "type"))?;
        Some(match declared {
            Cow::Borrowed(name) => Cow::Borrowed(local(name)),
            Cow::Owned(name) => Cow::Owned(local(&name).to_owned()),
        })
    }

    /// The attribute `type` without prefix: the kind of a managed object.
    pub(crate) fn kind(&self) -> Option<Cow<'_, str>> {
        self.attribute(|key| key == "type")
    }

    /// Whether the element is nil.
    pub(crate) fn is_nil(&self) -> bool {
        let nil = self.attribute(|key| is_qualified(key, "nil"));
        nil.is_some_and(|value| value == "true" || value == "1")
    }

    /// The value of the first attribute whose name, prefix included, is wanted.
    pub(crate) fn attribute(&self, wanted: impl Fn(&str) -> bool) -> Option<Cow<'_, str>> {
        let mut attributes = self.start.attributes();
        attributes
            .with_checks(false)
            .filter_map(Result::ok)
            .find(|attribute| wanted(attribute.key.into_inner()))
            .map(|attribute| match attribute.value {
                value if !value.contains('&') => value,
                value => {
                    unescape(&value).map_or(Cow::Borrowed(""), |text| Cow::Owned(text.into_owned()))
                }
            })
    }
}

/// Whether an attribute has this name and a prefix. A prefix may be called `type`, too: `xmlns:type` binds it.
fn is_qualified(key: &str, name: &str) -> bool {
    key.split_once(':').is_some_and(|(prefix, local)| local == name && prefix != "xmlns")
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}
