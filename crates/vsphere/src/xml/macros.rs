//! The declarations that generated types are written in.

/// Structs: fields in the order of the wire, base class first. `since` names the version that brought a field.
macro_rules! data {
    ($($(#[$meta:meta])* $name:ident {
        $($field:ident : $type:ty = $wire:literal $(since $since:ident)?),* $(,)?
    })*) => { $(
        $(#[$meta])*
        #[doc = concat!("`", stringify!($name), "`")]
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $(
                #[doc = concat!("`", $wire, "`" $(, ", since ", stringify!($since))?)]
                pub $field: $type,
            )*
        }

        impl $crate::xml::FromXml for $name {
            fn from_xml(
                reader: &mut $crate::xml::Reader<'_>,
                element: &$crate::xml::Element<'_>,
            ) -> Result<Self, $crate::xml::Malformed> {
                let mut value = Self::default();
                // The underscores here and below are for types without fields.
                let _fields = &mut value;
                while let Some(child) = reader.child(element)? {
                    match child.name() {
                        $($wire => $crate::xml::Field::absorb(&mut _fields.$field, reader, &child)?,)*
                        _ => {}
                    }
                }
                Ok(value)
            }
        }

        impl $name {
            pub(crate) fn fields(&self, _writer: &mut $crate::xml::Writer) {
                $($crate::xml::data!(@field self, _writer, $field, $wire $(, $since)?);)*
            }
        }

        impl $crate::xml::ToXml for $name {
            fn to_xml(&self, writer: &mut $crate::xml::Writer, name: &str) {
                writer.open(name);
                self.fields(writer);
                writer.close(name);
            }
        }
    )* };
    (@field $value:ident, $writer:ident, $field:ident, $wire:literal) => {
        $crate::xml::ToXml::to_xml(&$value.$field, $writer, $wire)
    };
    (@field $value:ident, $writer:ident, $field:ident, $wire:literal, $since:ident) => {
        if $writer.knows($crate::types::versions::$since) {
            $crate::xml::ToXml::to_xml(&$value.$field, $writer, $wire);
        }
    };
}

/// A field whose type has subtypes: an enum over those we know, distinguished by `xsi:type`, which is always
/// written. A subtype that we do not know keeps its name and the fields of the base.
macro_rules! family {
    ($($name:ident of $base:ident $(default $default:ident)? { $($variant:ident),* $(,)? })*) => { $(
        #[doc = concat!("`", stringify!($base), "` or a subtype of it.")]
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            #[doc = concat!("`", stringify!($base), "` itself.")]
            $base($base),
            $(
                #[doc = concat!("`", stringify!($variant), "`")]
                $variant($variant),
            )*
            /// A subtype of a newer server, with the fields of the base. It can be read, not written.
            Other {
                /// The subtype's name.
                type_name: String,
                /// What it has in common with the others.
                base: $base,
            },
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$base($base::default())
            }
        }

        impl From<$base> for $name {
            fn from(value: $base) -> Self {
                Self::$base(value)
            }
        }

        $(impl From<$variant> for $name {
            fn from(value: $variant) -> Self {
                Self::$variant(value)
            }
        })*

        impl $crate::xml::FromXml for $name {
            fn from_xml(
                reader: &mut $crate::xml::Reader<'_>,
                element: &$crate::xml::Element<'_>,
            ) -> Result<Self, $crate::xml::Malformed> {
                use $crate::xml::FromXml;
                let declared = element.xsi_type();
                let declared = declared.as_deref();
                Ok(match declared.unwrap_or($crate::xml::family!(@missing $base $($default)?)) {
                    stringify!($base) => Self::$base(FromXml::from_xml(reader, element)?),
                    $(stringify!($variant) => Self::$variant(FromXml::from_xml(reader, element)?),)*
                    other => Self::Other {
                        type_name: other.to_owned(),
                        base: FromXml::from_xml(reader, element)?,
                    },
                })
            }
        }

        impl $crate::xml::ToXml for $name {
            fn to_xml(&self, writer: &mut $crate::xml::Writer, name: &str) {
                let (declared, fields): (&str, &dyn Fn(&mut $crate::xml::Writer)) = match self {
                    Self::$base(value) => (stringify!($base), &|writer| value.fields(writer)),
                    $(Self::$variant(value) => (stringify!($variant), &|writer| value.fields(writer)),)*
                    Self::Other { type_name, base } => (type_name, &|writer| base.fields(writer)),
                };
                writer.open_with(name, &[("xsi:type", declared)]);
                fields(writer);
                writer.close(name);
            }
        }
    )* };
    (@missing $base:ident) => { stringify!($base) };
    (@missing $base:ident $default:ident) => { stringify!($default) };
}

/// Enumerations. Newer servers send values that we do not know; they stay readable as text.
macro_rules! text_enum {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident = $wire:literal),* $(,)? })*) => { $(
        $(#[$meta])*
        #[doc = concat!("`", stringify!($name), "`")]
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                #[doc = concat!("`", $wire, "`")]
                $variant,
            )*
            /// A value that came after our tables.
            Other(String),
        }

        impl $name {
            /// The value on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $wire,)*
                    Self::Other(other) => other,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($wire => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl $crate::xml::FromXml for $name {
            fn from_xml(
                reader: &mut $crate::xml::Reader<'_>,
                element: &$crate::xml::Element<'_>,
            ) -> Result<Self, $crate::xml::Malformed> {
                Ok(Self::from(&*reader.text(element)?))
            }
        }

        impl $crate::xml::ToXml for $name {
            fn to_xml(&self, writer: &mut $crate::xml::Writer, name: &str) {
                writer.leaf(name, self.as_str());
            }
        }
    )* };
}

/// Kinds of managed objects, each with its ancestors.
macro_rules! kinds {
    ($($name:ident : $($ancestor:ident)*),* $(,)?) => { $(
        #[doc = concat!("The kind of managed object called `", stringify!($name), "`.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}

        impl $crate::reference::Kind for $name {
            const NAME: &'static str = stringify!($name);
        }

        $(impl $crate::reference::IsA<$ancestor> for $name {})*
    )* };
}

/// Methods: a struct with the arguments, in order. They are not `Debug`: some carry passwords.
macro_rules! method {
    ($($name:ident = $wire_name:literal on $on:ident at $service:ident $(since $gate:ident)? {
        $($field:ident : $type:ty = $wire:literal $(since $since:ident)?),* $(,)?
    } -> $answer:ty)*) => { $(
        #[doc = concat!("Calls `", $wire_name, "`" $(, ", which exists since ", stringify!($gate))?, ".")]
        #[derive(Clone, Default)]
        pub struct $name {
            $(
                #[doc = concat!("`", $wire, "`" $(, ", since ", stringify!($since))?)]
                pub $field: $type,
            )*
        }

        impl $crate::xml::Method for $name {
            type On = $on;
            type Answer = $answer;
            const NAME: &'static str = $wire_name;
            const SERVICE: $crate::soap::Service = $crate::soap::Service::$service;
            const SINCE: Option<$crate::version::Since> = $crate::xml::method!(@since $($gate)?);

            fn arguments(&self, _writer: &mut $crate::xml::Writer) {
                $($crate::xml::data!(@field self, _writer, $field, $wire $(, $since)?);)*
            }
        }
    )* };
    (@since) => { None };
    (@since $gate:ident) => { Some($crate::types::versions::$gate) };
}

pub(crate) use {data, family, kinds, method, text_enum};
