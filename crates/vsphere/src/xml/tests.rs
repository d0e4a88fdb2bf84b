//! What only the inside of the crate can reach: fragments, and text that may have children.

use super::{FromXml, Reader};
use crate::types::{AnySelectionSpec, KeyValue};

const DOCUMENT: &str = r#"<?xml version="1.0"?><root xmlns:i="instance">
    <before>x</before><a:val i:type="vim:TraversalSpec" b='"'><name>a &lt; b</name><!-- </val> -->
    <selectSet><name><![CDATA[</a:val>]]></name></selectSet><val/></a:val><key>k</key><val/></root>"#;

/// The fragments of the elements called `val` in the root, and the text of `key`.
fn fragments(document: &str) -> Result<(Vec<String>, String), super::Malformed> {
    let mut reader = Reader::new(document);
    let root = reader.root()?;
    let (mut found, mut key) = (Vec::new(), String::new());
    while let Some(child) = reader.child(&root)? {
        match child.name() {
            "val" => found.push(reader.fragment(&child)?),
            "key" => key = String::from_xml(&mut reader, &child)?,
            _ => {}
        }
    }
    Ok((found, key))
}

fn selection(document: &str) -> AnySelectionSpec {
    let mut reader = Reader::new(document);
    let root = reader.root().unwrap();
    AnySelectionSpec::from_xml(&mut reader, &root).unwrap()
}

#[test]
fn a_fragment_reads_as_the_element_it_was() {
    let (found, key) = fragments(DOCUMENT).unwrap();
    assert_eq!(key, "k");
    let AnySelectionSpec::TraversalSpec(spec) = selection(&found[0]) else { panic!("{found:?}") };
    assert_eq!(spec.name.as_deref(), Some("a < b"));
    assert_eq!(spec.select_set.len(), 1);
    assert_eq!(selection(&found[1]), AnySelectionSpec::default());
    assert_eq!(found.len(), 2);
}

#[test]
fn a_fragment_that_was_cut_anywhere_is_an_error() {
    for (at, _) in DOCUMENT.char_indices() {
        assert!(fragments(&DOCUMENT[..at]).is_err(), "until {at}");
    }
}

#[test]
fn a_fragment_may_be_deep_but_what_reads_it_is_careful() {
    let inner = format!("<val>{}{}</val>", "<a>".repeat(1000), "</a>".repeat(1000));
    let (found, _) = fragments(&format!("<root>{inner}</root>")).unwrap();
    assert_eq!(found, std::slice::from_ref(&inner));
    let mut reader = Reader::new(&inner);
    let root = reader.root().unwrap();
    KeyValue::from_xml(&mut reader, &root).unwrap_err();
}

#[test]
fn text_is_told_from_children() {
    let mut reader = Reader::new("<v> <a>1</a>x<b><c>2</c></b></v>");
    let root = reader.root().unwrap();
    let mut names = Vec::new();
    let (text, children) = reader
        .text_or_children(&root, |_, child| {
            names.push(child.name().to_owned());
            Ok(())
        })
        .unwrap();
    assert_eq!((&*text, children), (" x", true));
    assert_eq!(names, ["a", "b"]);
}
