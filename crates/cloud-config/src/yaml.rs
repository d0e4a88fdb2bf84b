//! The YAML form of `vsphere.conf`, with the place of every name and value.
//!
//! Values are kept as they were written: a password `0123` is these four characters, not a number. Anchors, aliases and merges are resolved by the parser, within its limits.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned, options::NonFiniteFloatPolicy};

use crate::{
    document::{Block, Item, Located, Value},
    keys::{FileKind, Format, Section},
    problem::{Place, Position, Report},
};

/// A node of the tree and its place.
struct Node {
    at: Location,
    content: Content,
}

enum Content {
    Null,
    Text(String),
    /// A number or a boolean; its text is read from its place.
    Plain,
    List(Vec<Node>),
    Map(Vec<(Located, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: content, defined: at, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { at, content })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shape)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Content, E> {
        Ok(Content::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Content, E> {
        Ok(Content::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Content, E> {
        Ok(Content::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Content, E> {
        Ok(Content::Plain)
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Content::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some((name, node)) = map.next_entry::<Spanned<String>, Node>()? {
            entries.push((Located { text: name.value, at: place(name.defined) }, node));
        }
        Ok(Content::Map(entries))
    }
}

fn place(location: Location) -> Place {
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Place::File(Position { line: number(location.line()), column: number(location.column()) })
}

fn source_at(location: Location, source: &str) -> Option<&str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    source.get(start..start.checked_add(length)?)
}

/// All sections with their keys; mistakes go into the report.
pub(crate) fn parse(text: &str, kind: FileKind, report: &mut Report) -> Vec<Block> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    let root: Node = match serde_saphyr::from_str_with_options(text, options) {
        Ok(root) => root,
        Err(error) => {
            refuse(text, &error, report);
            return Vec::new();
        }
    };
    let mut blocks = Vec::new();
    match root.content {
        Content::Map(sections) => {
            let foreign = |name: &Located| {
                Section::find(&name.text, Format::Yaml).is_some_and(|it| it.is_foreign(kind))
            };
            for (name, node) in sections.into_iter().filter(|(name, _)| !foreign(name)) {
                section(&name, node, text, &mut blocks, report);
            }
        }
        Content::Null => {}
        _ => report.refuse(
            place(root.at),
            "",
            "the file is not a mapping of sections",
            "begin with a section such as `global:` at the left margin, its keys indented below",
        ),
    }
    blocks
}

fn section(name: &Located, node: Node, source: &str, blocks: &mut Vec<Block>, report: &mut Report) {
    let known = Section::find(&name.text, Format::Yaml);
    let named = known.is_some_and(|section| section.is_named());
    let unsupported = known.is_some_and(|section| section.unsupported().is_some());
    match node.content {
        Content::Map(entries) if named && !unsupported => {
            for (sub, node) in entries {
                match node.content {
                    Content::Null => blocks.push(block(name, Some(sub), Vec::new(), source)),
                    Content::Map(entries) => blocks.push(block(name, Some(sub), entries, source)),
                    _ => refuse_entry(name, &sub, known, report),
                }
            }
        }
        Content::Map(entries) => blocks.push(block(name, None, entries, source)),
        // The name alone of an unknown or unsupported section is worth a message.
        _ if known.is_none() || unsupported => blocks.push(block(name, None, Vec::new(), source)),
        Content::Null => {}
        _ => report.refuse(
            place(node.at),
            &name.text,
            "a section must be a mapping",
            format!("write its keys in lines of their own, indented below `{}:`", name.text),
        ),
    }
}

fn block(
    name: &Located,
    subsection: Option<Located>,
    entries: Vec<(Located, Node)>,
    source: &str,
) -> Block {
    let items = entries.into_iter().filter_map(|entry| item(entry, source)).collect();
    Block { name: name.clone(), subsection, items }
}

fn refuse_entry(name: &Located, sub: &Located, known: Option<Section>, report: &mut Report) {
    let key = format!("{}.{}", name.text, sub.text);
    let (a, its) = match known {
        Some(Section::NetPermissions) => ("a permission", "permission"),
        Some(Section::TopologyCategory) => ("a category", "category"),
        _ => ("a vCenter", "vCenter"),
    };
    let text = format!("the name of {a} is expected here, with its keys below it");
    let remedy = format!(
        "if `{}` is a key, indent it below the name of its {its}; \
         if it is that name, write the keys in lines of their own below it",
        sub.text
    );
    report.refuse(sub.at, &key, text, remedy);
}

/// A key with its value; `None` without a value.
fn item((name, node): (Located, Node), source: &str) -> Option<Item> {
    let at = place(node.at);
    let value = match node.content {
        Content::Null => return None,
        Content::Map(_) => Value::Nested,
        Content::List(nodes) => {
            let texts = nodes.into_iter().map(|node| {
                let at = place(node.at);
                scalar(node, source).map(|text| Located { text, at })
            });
            texts.collect::<Option<_>>().map_or(Value::Nested, Value::List)
        }
        content => scalar(Node { content, ..node }, source).map_or(Value::Nested, Value::Text),
    };
    Some(Item { name, value, at })
}

fn scalar(node: Node, source: &str) -> Option<String> {
    match node.content {
        Content::Text(text) => Some(text),
        Content::Plain => source_at(node.at, source).map(|text| text.trim().to_owned()),
        Content::Null | Content::List(_) | Content::Map(_) => None,
    }
}

/// The parser's message, our message, and the remedy.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "mapping values are not allowed",
        "there is a second `: ` in a line, or a line is indented further than its neighbours",
        "indent the keys of a section alike, and put a value that contains `: ` in quotes",
    ),
    (
        "did not find expected key",
        "a line is indented less than its neighbours, but more than their section",
        "indent the keys of a section alike",
    ),
    (
        "unexpected character",
        "a value cannot begin with this character",
        "put the value in double quotes",
    ),
    (
        "expected string scalar",
        "a name is expected here, but there is a list or a mapping",
        "put a value that begins with a bracket or a brace in quotes; \
         {{ }} is a template that was not filled in",
    ),
    (
        "invalid indentation in multiline quoted scalar",
        "a quoted value goes on in this line, which is not indented",
        "close the quotes in the line where they were opened",
    ),
    (
        "found unknown escape character",
        "a backslash in double quotes begins an unknown escape",
        "write it as \\\\, or put the value in single quotes",
    ),
    (
        "alias references unknown anchor",
        "a value that begins with * is read as a reference",
        "put the value in quotes",
    ),
    (
        "did not find expected ',' or",
        "a brace or a bracket is not closed, or a comma is missing",
        "close it in the line where it was opened",
    ),
    ("unclosed bracket", "a brace or a bracket is not closed", "close it"),
    ("multiple YAML documents", "there is more than one document", "remove all but one"),
    ("simple key expected ':'", "this line has no colon", "write it as key: value"),
    ("null into string", "a name is expected before the colon", "write it as key: value"),
];

/// Reports a text that is not YAML, in the parser's words where we have none; it does not quote values.
fn refuse(text: &str, error: &serde_saphyr::Error, report: &mut Report) {
    let at = error.location().map_or(Place::Whole, place);
    let line = match at {
        Place::File(position) => text.lines().nth(position.line.saturating_sub(1)).unwrap_or(""),
        _ => "",
    };
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if line.trim_start_matches(' ').starts_with('\t') {
        let text = "this is not valid YAML: a line is indented with a tab";
        report.refuse(at, "", text, "use spaces");
    } else if let Some(rest) = message.strip_prefix("duplicate mapping key: ") {
        let key = rest.split(',').next().unwrap_or_default();
        report.refuse(at, key, "it is given twice", "remove one of them");
    } else if let Some((_, text, remedy)) = MISTAKES.iter().find(|known| message.contains(known.0))
    {
        report.refuse(at, "", format!("this is not valid YAML: {text}"), *remedy);
    } else {
        let remedy = "check indentation, brackets and quotes of this line and of those before it";
        report.refuse(at, "", format!("this is not valid YAML: {message}"), remedy);
    }
}
