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

use std::borrow::Cow;

use jiff::{Timestamp, tz::TimeZone};

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

    /// The value of a property: as a field, but a list is one element with its items as children.
    fn property(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let mut value = Self::default();
        value.absorb(reader, element)?;
        Ok(value)
    }
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

    fn property(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let mut items = Self::new();
        while let Some(item) = reader.child(element)? {
            items.absorb(reader, &item)?;
        }
        Ok(items)
    }
}

/// A method of a managed object: its arguments, and the type of its answer.
pub trait Method: Send + Sync + 'static {
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

/// No answer, or one that is read by hand, element by element.
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

/// Simple values: how the text is read; written, they are their own text.
macro_rules! simple {
    ($($type:ty: $parse:expr;)*) => { $(
        impl FromXml for $type {
            fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
                let text = reader.text(element)?;
                let parse: fn(&str) -> Result<Self, _> = $parse;
                parse(text.trim()).map_err(|error| {
                    reader.malformed(format!("{}: {text:?}: {error}", element.name()))
                })
            }
        }

        impl ToXml for $type {
            fn to_xml(&self, writer: &mut Writer, name: &str) {
                writer.plain(name, self);
            }
        }
    )* };
}

simple! {
    bool: |text| match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("it is not a valid boolean"),
    };
    i16: str::parse;
    i32: str::parse;
    i64: str::parse;
    f64: str::parse;
    // vCenter writes an offset; a time without one is in UTC.
    Timestamp: |text| text.parse().or_else(|_| TimeZone::UTC.to_timestamp(text.parse()?));
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Value {
    /// The type's name without prefix: `string`, `long`, or one of vCenter's own.
    pub type_name: String,
    /// The value as vCenter's own tools show it.
    pub text: String,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self { type_name: "string".to_owned(), text: text.to_owned() }
    }
}

impl FromXml for Value {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        let type_name = element.xsi_type().map_or("string".to_owned(), Cow::into_owned);
        Ok(Self { type_name, text: String::from_xml(reader, element)? })
    }
}

impl ToXml for Value {
    fn to_xml(&self, writer: &mut Writer, name: &str) {
        // XML Schema's own types begin small, vCenter's do not.
        let schema = self.type_name.starts_with(char::is_lowercase);
        let prefix = if schema { "xsd:" } else { "" };
        writer.open_with(name, &[("xsi:type", &format!("{prefix}{}", self.type_name))]);
        writer.escaped(&self.text);
        writer.close(name);
    }
}
