//! Faults: why the server refused a call, with the details that callers use.
//!
//! vCenter has hundreds of fault types. There is no Rust type for each: a [`Fault`] keeps its type's
//! name, its message and its simple fields, and knows the hierarchy, so that `is_a("NotFound")` also holds
//! for the subtypes of `NotFound`.

use std::fmt;

use crate::{
    types::faults::PARENTS,
    xml::{Element, FromXml, Malformed, Reader, ToXml, Writer},
};

/// No fault has more simple fields that matter; the rest of a strange answer is not kept.
const MOST_FIELDS: usize = 32;

/// A fault of the server: a refused call, a failed task, a failed volume of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fault {
    type_name: String,
    message: String,
    /// The texts of `faultMessage`: what CNS and vSAN add to a fault.
    details: Vec<String>,
    fields: Vec<(String, String)>,
    cause: Option<Box<Self>>,
}

impl Fault {
    /// The name of its type: `CnsVolumeNotFoundFault`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The server's sentence, in the server's language.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The text of one of its fields; fields inside fields are joined by a dot: `volumeId.id`.
    pub fn field(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str())
    }

    /// What the server adds to this fault and to those that led to it.
    pub fn details(&self) -> impl Iterator<Item = &str> {
        self.chain().flat_map(|fault| fault.details.iter().map(String::as_str))
    }

    /// The fault that led to this one.
    pub fn cause(&self) -> Option<&Self> {
        self.cause.as_deref()
    }

    /// Whether its type is `ancestor` or inherits from it.
    pub fn is_a(&self, ancestor: &str) -> bool {
        // The table is generated from a hierarchy, so this ends.
        let mut types = std::iter::successors(Some(self.type_name.as_str()), |name| parent(name));
        types.any(|name| name == ancestor)
    }

    /// This fault or the first of its causes that is of a type: CNS wraps faults of vCenter.
    pub fn find(&self, ancestor: &str) -> Option<&Self> {
        self.chain().find(|fault| fault.is_a(ancestor))
    }

    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |fault| fault.cause())
    }

    /// A fault inside a SOAP answer: the type is in the element, the message beside it.
    pub(crate) fn detailed(
        reader: &mut Reader<'_>,
        detail: &Element<'_>,
        message: String,
    ) -> Result<Self, Malformed> {
        let mut fault = Self { message, ..Self::default() };
        fault.read_type(reader, detail)?;
        Ok(fault)
    }

    /// A fault without details, as the WS-* services answer.
    pub(crate) fn bare(type_name: &str, message: &str) -> Self {
        Self { type_name: type_name.to_owned(), message: message.to_owned(), ..Self::default() }
    }

    fn read_type(
        &mut self,
        reader: &mut Reader<'_>,
        element: &Element<'_>,
    ) -> Result<(), Malformed> {
        self.type_name = type_of(element);
        while let Some(child) = reader.child(element)? {
            match child.name() {
                "faultCause" => self.cause = Some(Box::new(Self::from_xml(reader, &child)?)),
                "faultMessage" => {
                    if let Some(text) = reader.find(&child, "message")? {
                        self.details.push(String::from_xml(reader, &text)?);
                    }
                }
                name => self.read_field(reader, &child, name.to_owned())?,
            }
        }
        Ok(())
    }

    fn read_field(
        &mut self,
        reader: &mut Reader<'_>,
        element: &Element<'_>,
        path: String,
    ) -> Result<(), Malformed> {
        if self.fields.len() >= MOST_FIELDS {
            return Ok(());
        }
        if let Some(kind) = element.kind() {
            self.fields.push((format!("{path}@type"), kind.into_owned()));
        }
        let (text, children) = reader.text_or_children(element, |reader, child| {
            let inner = format!("{path}.{}", child.name());
            self.read_field(reader, child, inner)
        })?;
        if !children {
            self.fields.push((path, text.into_owned()));
        }
        Ok(())
    }
}

/// The type that an element declares, or that it is named after: `NoPermissionFault`. Some types end so themselves,
/// and servers have been seen to declare the name of the element: `AlreadyUpgradedFault`.
fn type_of(element: &Element<'_>) -> String {
    let declared = element.xsi_type();
    let name = declared.as_deref().unwrap_or(element.name());
    let known = |name: &str| parent(name).is_some();
    let stripped = name.strip_suffix("Fault").filter(|_| !known(name));
    stripped.filter(|name| declared.is_none() || known(name)).unwrap_or(name).to_owned()
}

fn parent(name: &str) -> Option<&'static str> {
    PARENTS.binary_search_by_key(&name, |(child, _)| child).ok().map(|at| PARENTS[at].1)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.type_name)?;
        let reason = self.field("reason").or_else(|| self.field("errorMessage"));
        let mut shown = String::new();
        for text in [self.message.as_str()].into_iter().chain(reason).chain(self.details()) {
            let text = text.trim_end_matches('.');
            if !shown.contains(text) {
                let open = if shown.is_empty() { ": " } else { " (" };
                let close = if shown.is_empty() { "" } else { ")" };
                shown.push_str(&format!("{open}{text}{close}"));
            }
        }
        f.write_str(&shown)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// A `LocalizedMethodFault`, which has the fault and its message side by side, or the bare fault if that is
/// the element's declared type.
impl FromXml for Fault {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        if element.xsi_type().is_some_and(|declared| declared != "LocalizedMethodFault") {
            return Self::detailed(reader, element, String::new());
        }
        let mut fault = Self::default();
        while let Some(child) = reader.child(element)? {
            match child.name() {
                "fault" => fault.read_type(reader, &child)?,
                "localizedMessage" => fault.message = String::from_xml(reader, &child)?,
                _ => {}
            }
        }
        Ok(fault)
    }
}

/// Faults only come from the server: written, they are nothing.
impl ToXml for Fault {
    fn to_xml(&self, _: &mut Writer, _: &str) {}
}
