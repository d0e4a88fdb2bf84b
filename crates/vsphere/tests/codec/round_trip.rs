//! What we write is what we read, and what we do not know in between changes nothing.

use std::fmt::Debug;

use proptest::{prelude::*, sample::Index};
use vsphere::xml::{FromXml, ToXml};

use crate::{read, values, write};

/// What newer servers and other implementations put between what we know.
const STRANGERS: [&str; 5] = [
    "<unknown/>",
    r#"<unknown xsi:type="Strange"><id>7</id><name>8</name>text&lt;<v><volumeId/><![CDATA[more]]></v></unknown>"#,
    "<!-- <id>7</id> -->",
    "<?target <id>7</id> ?>",
    "<x:unknown xmlns:x='urn:x' x:type='CnsVolume' type='VirtualMachine'>&lt;</x:unknown>",
];

/// Writes, reads, and reads again with everything that must not matter.
fn check<T: FromXml + ToXml + PartialEq + Debug>(
    value: &T,
    stranger: (Index, Index),
) -> Result<(), TestCaseError> {
    let document = write(value);
    let again: T = read(&document).unwrap();
    prop_assert_eq!(&again, value, "{}", document);

    let variants = [
        with_stranger(&document, stranger),
        other_prefixes(&document),
        indented(&document),
        format!("\u{feff}<?xml version=\"1.0\"?>\n<!DOCTYPE v>\n<!-- v -->{document}\n"),
    ];
    for variant in variants {
        let again: T = read(&variant).unwrap();
        prop_assert_eq!(&again, value, "{}", variant);
    }
    Ok(())
}

/// Something unknown behind any tag but the last; `>` in text is escaped.
fn with_stranger(document: &str, (place, which): (Index, Index)) -> String {
    let tags: Vec<usize> = document.match_indices('>').map(|(at, _)| at + 1).collect();
    let inside = &tags[..tags.len() - 1];
    let at = inside[place.index(inside.len())];
    format!("{}{}{}", &document[..at], which.get(&STRANGERS), &document[at..])
}

/// Every element and every type with a prefix, and another one for `xsi`.
fn other_prefixes(document: &str) -> String {
    let prefixed = document.replace('<', "<vim-25.x:").replace("<vim-25.x:/", "</vim-25.x:");
    prefixed
        .replace(" xsi:type=\"", " xmlns:type='urn:type' _XMLSchema-instance:type=\"type:")
        .replace(" type=\"type:", " type=\"")
}

/// White space between elements, where it means nothing.
fn indented(document: &str) -> String {
    let mut text = String::new();
    let mut opened = false;
    for (at, character) in document.char_indices() {
        let closes = document[at..].starts_with("</");
        let follows = text.ends_with('>');
        if character == '<' && follows && !(opened && closes) {
            text.push_str("\r\n\t ");
        }
        if character == '<' {
            opened = !closes;
        }
        text.push(character);
    }
    text
}

fn stranger() -> impl Strategy<Value = (Index, Index)> {
    (any::<Index>(), any::<Index>())
}

proptest! {
    #[test]
    fn text_with_every_character_of_xml(value in values::text(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn values_of_any_type(value in values::value(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn options_with_a_value_of_any_type(value in values::option_value(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn volumes_with_families_enumerations_and_lists(
        value in values::volume(),
        stranger in stranger(),
    ) {
        check(&value, stranger)?;
    }

    #[test]
    fn filters_with_families_that_contain_themselves(
        value in values::filter(),
        stranger in stranger(),
    ) {
        check(&value, stranger)?;
    }

    #[test]
    fn boxes_in_boxes(value in values::crypto(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn numbers_booleans_and_times(value in values::nic(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn tasks(value in values::task(), stranger in stranger()) {
        check(&value, stranger)?;
    }

    #[test]
    fn text_in_sections_of_plain_characters(value in values::text()) {
        let sections = value.replace("]]>", "]]]]><![CDATA[>");
        let document = format!("<v>\u{e4}<![CDATA[{sections}]]><![CDATA[]]>&#x61;</v>");
        prop_assert_eq!(read::<String>(&document).unwrap(), format!("\u{e4}{value}a"));
    }
}
