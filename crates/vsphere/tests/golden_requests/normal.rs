//! The normal form of requests, so that they can be compared as text: indented, attributes sorted, without
//! namespaces.

use quick_xml::{
    Reader,
    escape::unescape,
    events::{BytesStart, Event},
};

/// The prefixes mean what everybody thinks they mean.
const PREFIXES: [&str; 2] = [
    r#"xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance""#,
    r#"xmlns:xsd="http://www.w3.org/2001/XMLSchema""#,
];

struct Node {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Self>,
}

/// A request of ours as the golden files have theirs.
pub(crate) fn normalised(preview: &str) -> String {
    let (head, envelope) = preview.split_once("\n\n").unwrap();
    let (path, action) = head.split_once('\n').unwrap();
    let path = path.strip_prefix("POST ").unwrap();
    let action = action.strip_prefix("SOAPAction: ").unwrap();
    let (namespace, _version) = action.split_once('/').unwrap();
    assert!(PREFIXES.iter().all(|prefix| envelope.contains(prefix)), "{envelope}");

    let tree = tree(envelope);
    assert_eq!(tree.name, "Envelope");
    let mut text = format!("<!-- path {path}  action {namespace} -->\n");
    for part in &tree.children {
        match part.name.as_str() {
            "Header" => print(part, 0, &mut text),
            "Body" => {
                let [call] = part.children.as_slice() else { panic!("one call: {envelope}") };
                let declared = format!(r#"<{} xmlns="{namespace}">"#, call.name);
                assert!(envelope.contains(&declared), "{envelope}");
                print(call, 0, &mut text);
            }
            other => panic!("{other} in an envelope"),
        }
    }
    text
}

/// The lines of the header, if there is one, and the others.
pub(crate) fn without_header(text: &str) -> (Vec<String>, Vec<String>) {
    let mut inside = false;
    text.lines().map(str::to_owned).partition(|line| {
        let ends = inside && line == "</Header>";
        inside = !ends && (inside || line.starts_with("<Header>"));
        inside || ends
    })
}

fn tree(document: &str) -> Node {
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    let mut open = vec![node("", Vec::new())];
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                let name = start.local_name().into_inner().to_owned();
                open.push(node(&name, attributes(&start)));
            }
            Event::End(_) => {
                let closed = open.pop().unwrap();
                open.last_mut().unwrap().children.push(closed);
            }
            Event::Text(text) => open.last_mut().unwrap().text.push_str(&text.into_inner()),
            Event::GeneralRef(reference) => {
                let escaped = format!("&{};", reference.into_inner());
                open.last_mut().unwrap().text.push_str(&unescape(&escaped).unwrap());
            }
            Event::Eof => return open.pop().unwrap().children.pop().unwrap(),
            _ => {}
        }
    }
}

fn node(name: &str, attributes: Vec<(String, String)>) -> Node {
    Node { name: name.to_owned(), attributes, text: String::new(), children: Vec::new() }
}

fn attributes(start: &BytesStart<'_>) -> Vec<(String, String)> {
    let mut attributes: Vec<_> = start
        .attributes()
        .map(Result::unwrap)
        .map(|one| (one.key.into_inner().to_owned(), unescape(&one.value).unwrap().into_owned()))
        .filter(|(key, _)| key != "xmlns" && !key.starts_with("xmlns:"))
        .collect();
    attributes.sort();
    attributes
}

fn print(node: &Node, depth: usize, to: &mut String) {
    let indent = "  ".repeat(depth);
    let mut open = format!("{indent}<{}", node.name);
    for (key, value) in &node.attributes {
        open.push_str(&format!(r#" {key}="{}""#, escaped(value).replace('"', "&quot;")));
    }
    if node.children.is_empty() {
        to.push_str(&format!("{open}>{}</{}>\n", escaped(&node.text), node.name));
        return;
    }
    to.push_str(&format!("{open}>\n"));
    for child in &node.children {
        print(child, depth + 1, to);
    }
    to.push_str(&format!("{indent}</{}>\n", node.name));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
