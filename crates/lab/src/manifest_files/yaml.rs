//! JSON values as YAML for people: the names that are looked for first come first.

use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The value as one document. Keys come in the order of Kubernetes' conventions, then by the alphabet.
pub(super) fn document(value: &Value) -> Result<String> {
    // Long values, such as image names, stay on their line.
    let options =
        serde_saphyr::ser_options! { compact_list_indent: false, folded_wrap_chars: 1000 };
    Ok(serde_saphyr::to_string_with_options(&Ordered(value), options)?)
}

struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_by_key(|(name, _)| (rank(name), *name));
                serializer
                    .collect_map(fields.into_iter().map(|(name, value)| (name, Ordered(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Ordered)),
            other => other.serialize(serializer),
        }
    }
}

/// Names that people look for first.
fn rank(name: &str) -> usize {
    const FIRST: [&str; 6] = ["apiVersion", "kind", "metadata", "name", "namespace", "key"];
    FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same() {
        let value = json!({
            "kind": "Example",
            "empty": {}, "none": [], "nothing": null, "yes": true, "number": 10258, "ratio": 0.5,
            "list": ["a", "true", "-1", "1", "", " x", "a: b", "# no", "--v=2", "---", "--", "- x", "10.0.0.1", "a:", "~", "=", "<<"],
            "nested": [[1, [2, 3]], {"a": [{"b": {"c": "d"}}], "e": "f"}, []],
            "text": "one\n  two\n\nthree\n", "no end": "one\ntwo", "odd": "ä\u{7}\u{2028}\n", "lead": " x\ny\n",
            "quoted \"key\"": "a\tb", "node.kubernetes.io/not-ready": "100m", "at": "a@b", "null": "null", "1e3": "1e3",
        });
        let text = document(&value).unwrap();
        let read: Value =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read, value, "{text}");
    }

    #[test]
    fn a_document_reads_as_people_write_it() {
        let value = json!({"spec": {"args": ["--v=2"], "env": [{"value": "1", "name": "A"}]}, "kind": "Pod"});
        let expected =
            "kind: Pod\nspec:\n  args:\n    - --v=2\n  env:\n    - name: A\n      value: \"1\"\n";
        assert_eq!(document(&value).unwrap(), expected);
    }
}
