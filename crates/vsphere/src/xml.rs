//! The codec: how values of ours become elements of vCenter and back.
//!
//! Reading is by name, in any order, and skips what it does not know. Writing is in the order of the
//! declaration, which is the order of the wire, and leaves out what the server is too old for. Both come
//! from one list of fields per type, declared with the macros below; nearly all of them are generated.
//!
//! Deliberately absent: a tree of nodes. Answers are read once, from front to back, straight into types.

mod macros;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use macros::{data, family, kinds, method, text_enum};
pub use read::{Element, Malformed, Reader};
pub use write::Writer;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::{reference::Kind, soap::Service, version::Since};

/// Can be read from an element.
pub trait FromXml: Sized {
    /// Reads the value of an element whose start tag has been consumed.
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed>;
}

/// Can be written as an element.
pub trait ToXml {
    /// Writes the value as an element of this name, or nothing if there is no value.
    fn to_xml(&self, writer: &mut Writer, name: &str);
}

/// A field of a type: a value, perhaps one, or several elements of the same name.
pub trait Field: Default {
    /// Takes one more element of the field's name.
    fn absorb(&mut self, reader: &mut Reader<'_>, element: &Element<'_>) -> Result<(), Malformed>;
}

impl<T: FromXml + Default> Field for T {
    fn absorb(&mut self, reader: &mut Reader<'_>, element: &Element<'_>) -> Result<(), Malformed> {
        *self = T::from_xml(reader, element)?;
        Ok(())
    }
}

impl<T: FromXml> Field for Option<T> {
    fn absorb(&mut self, reader: &mut Reader<'_>, element: &Element<'_>) -> Result<(), Malformed> {
        *self = if element.is_nil() { None } else { Some(T::from_xml(reader, element)?) };
        Ok(())
    }
}

impl<T: FromXml> Field for Vec<T> {
    fn absorb(&mut self, reader: &mut Reader<'_>, element: &Element<'_>) -> Result<(), Malformed> {
        self.push(T::from_xml(reader, element)?);
        Ok(())
    }
}

/// The value of a property: as a field, but a list is one element with its items as children.
pub trait Property: Default {
    /// The value of the element.
    fn read(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed>;
}

impl<T: FromXml + Default> Property for T {
    fn read(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        T::from_xml(reader, element)
    }
}

impl<T: FromXml> Property for Option<T> {
    fn read(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        if element.is_nil() { Ok(None) } else { T::from_xml(reader, element).map(Some) }
    }
}

impl<T: FromXml> Property for Vec<T> {
    fn read(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let mut items = Self::new();
        while let Some(item) = reader.child(element)? {
            items.push(T::from_xml(reader, &item)?);
        }
        Ok(items)
    }
}

/// A method of a managed object: its arguments, and the type of its answer.
pub trait Method {
    /// The kind of object that has it.
    type On: Kind;
    /// What it returns.
    type Answer: Field;
    /// Its name on the wire.
    const NAME: &'static str;
    /// The service it belongs to.
    const SERVICE: Service;
    /// The version that brought it, if older servers than we support lack it.
    const SINCE: Option<Since>;
    /// Writes the arguments in order.
    fn arguments(&self, writer: &mut Writer);
}

/// The answer of a method that is read by hand, element by element.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Raw;

impl FromXml for Raw {
    fn from_xml(_: &mut Reader<'_>, _: &Element<'_>) -> Result<Self, Malformed> {
        Ok(Self)
    }
}

impl FromXml for () {
    fn from_xml(_: &mut Reader<'_>, _: &Element<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl FromXml for String {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        Ok(reader.text(element)?.into_owned())
    }
}

impl ToXml for String {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        writer.leaf(name, self);
    }
}

impl FromXml for bool {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let text = reader.text(element)?;
        match text.trim() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            other => {
                Err(reader
                    .malformed(format!("{}: {other:?} is not a valid boolean", element.name())))
            }
        }
    }
}

impl ToXml for bool {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        writer.plain(name, self);
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl FromXml for $number {
            fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
                let text = reader.text(element)?;
                text.trim().parse().map_err(|error| {
                    reader.malformed(format!("{}: {text:?}: {error}", element.name()))
                })
            }
        }

        impl ToXml for $number {
            fn to_xml(&self, writer: &mut Writer, name: &str) {
                writer.plain(name, self);
            }
        }
    )* };
}

numbers! { i16 i32 i64 f64 }

impl FromXml for Timestamp {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let text = reader.text(element)?;
        let text = text.trim();
        // vCenter writes an offset; a time without one is in UTC.
        text.parse::<Self>()
            .or_else(|_| {
                text.parse::<DateTime>().and_then(|civil| TimeZone::UTC.to_timestamp(civil))
            })
            .map_err(|error| reader.malformed(format!("{}: {text:?}: {error}", element.name())))
    }
}

impl ToXml for Timestamp {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        writer.plain(name, self);
    }
}

impl<T: ToXml> ToXml for Option<T> {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        if let Some(value) = self {
            value.to_xml(writer, name);
        }
    }
}

impl<T: ToXml> ToXml for Vec<T> {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        for value in self {
            value.to_xml(writer, name);
        }
    }
}

impl<T: ToXml> ToXml for Box<T> {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        (**self).to_xml(writer, name);
    }
}

impl<T: FromXml> FromXml for Box<T> {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        T::from_xml(reader, element).map(Self::new)
    }
}

/// A value where the API allows any type: options of VMs, for example.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `xsd:string`
    Text(String),
    /// `xsd:boolean`
    Bool(bool),
    /// `xsd:int`
    Int(i32),
    /// `xsd:long`
    Long(i64),
    /// Any other type, with its text.
    Other {
        /// The type's name without prefix.
        type_name: String,
        /// The text of the element.
        text: String,
    },
}

impl Value {
    /// The value as text, as vCenter's own tools show it.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Other { text, .. } => text.clone(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Long(value) => value.to_string(),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl FromXml for Value {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        Ok(match element.xsi_type().as_deref() {
            Some("string") | None => Self::Text(String::from_xml(reader, element)?),
            Some("boolean") => Self::Bool(bool::from_xml(reader, element)?),
            Some("int") => Self::Int(i32::from_xml(reader, element)?),
            Some("long") => Self::Long(i64::from_xml(reader, element)?),
            Some(other) => Self::Other {
                type_name: other.to_owned(),
                text: String::from_xml(reader, element)?,
            },
        })
    }
}

impl ToXml for Value {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        let declared = match self {
            Self::Text(_) => "xsd:string",
            Self::Bool(_) => "xsd:boolean",
            Self::Int(_) => "xsd:int",
            Self::Long(_) => "xsd:long",
            // XML Schema's own types begin small, vCenter's do not.
            Self::Other { type_name, .. } if type_name.starts_with(char::is_lowercase) => {
                &format!("xsd:{type_name}")
            }
            Self::Other { type_name, .. } => type_name,
        };
        writer.open_with(name, &[("xsi:type", declared)]);
        writer.escaped(&self.text());
        writer.close(name);
    }
}
