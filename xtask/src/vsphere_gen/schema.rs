//! Reads schema/select.txt and schema/overlay.txt; their first lines say what a line may be.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, bail};

use super::{
    model::{DataType, Field, Method, Model, Service},
    names,
};

/// Where a line stands, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    file: &'static str,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schema/{}:{}", self.file, self.line)
    }
}

/// A line without its comment, with what it takes to understand it.
struct Line<'a> {
    place: Place,
    service: Service,
    indented: bool,
    words: Vec<&'a str>,
}

/// Splits a file into lines of words below their service.
fn lines<'a>(file: &'static str, text: &'a str) -> Result<Vec<Line<'a>>> {
    let mut current = None;
    let mut lines = Vec::new();
    for (number, text) in text.lines().enumerate() {
        let place = Place { file, line: number + 1 };
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some(first) = words.first() else { continue };
        if let Some(name) = first.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            let service = Service::ALL.into_iter().find(|service| service.file() == name);
            current = Some(service.with_context(|| format!("{place}: no service {name}"))?);
            continue;
        }
        let Some(service) = current else { bail!("{place}: a [SERVICE] must come first") };
        lines.push(Line { place, service, indented: text.starts_with(' '), words });
    }
    Ok(lines)
}

/// A chosen method or type.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) place: Place,
    pub(crate) service: Service,
    pub(crate) name: String,
}

/// What to generate.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// Methods, and whether the answer is read by hand.
    pub(crate) methods: Vec<(Choice, bool)>,
    /// Types, and the fields to which they are cut down.
    pub(crate) types: Vec<(Choice, Option<Vec<String>>)>,
    pub(crate) kinds: Vec<Choice>,
    /// By base: the choice is the subtype.
    pub(crate) defaults: BTreeMap<String, Choice>,
    /// By `TYPE.FIELD`: the choice is the enumeration.
    pub(crate) texts: BTreeMap<String, Choice>,
    /// As `TYPE.FIELD`.
    pub(crate) boxes: Vec<Choice>,
}

impl Selection {
    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut selection = Self::default();
        for Line { place, service, words, .. } in lines("select.txt", text)? {
            let choice = |name: &str| Choice { place, service, name: name.to_owned() };
            match words.as_slice() {
                ["method", name] => selection.methods.push((choice(name), false)),
                ["method", name, "->", "Raw"] => selection.methods.push((choice(name), true)),
                ["type", name] => selection.types.push((choice(name), None)),
                ["type", name, fields @ ..] if name.ends_with(':') => {
                    let fields = fields.iter().map(|&field| field.to_owned()).collect();
                    selection.types.push((choice(name.trim_end_matches(':')), Some(fields)));
                }
                ["kind", name] => selection.kinds.push(choice(name)),
                ["box", field] => selection.boxes.push(choice(field)),
                ["default", base, subtype] => {
                    selection.defaults.insert((*base).to_owned(), choice(subtype));
                }
                ["text", field, name] => {
                    selection.texts.insert((*field).to_owned(), choice(name));
                }
                _ => bail!("{place}: not understood; the top of the file says what a line may be"),
            }
        }
        Ok(selection)
    }
}

/// Adds the overlay to the model. A thing that the tables know, too, is an error: it is time to drop it here.
pub(crate) fn overlay(model: &mut Model, text: &str) -> Result<()> {
    /// What the indented lines belong to.
    enum Owner {
        Nobody,
        Data(String),
        Method,
    }
    let mut owner = Owner::Nobody;
    for line in lines("overlay.txt", text)? {
        let place = line.place;
        if line.indented {
            let field = field(model, &line)?;
            match &owner {
                Owner::Nobody => bail!("{place}: a field of nothing"),
                Owner::Data(name) => {
                    model.data.entry(name.clone()).and_modify(|data| data.fields.push(field));
                }
                Owner::Method => {
                    if let Some(method) = model.methods.last_mut() {
                        method.parameters.push(field);
                    }
                }
            }
            continue;
        }
        owner = Owner::Nobody;
        match line.words.as_slice() {
            ["kind", name] => {
                let known = model.kind_names().any(|kind| kind == *name);
                once(place, name, known)?;
                model.add_kind(name, super::model::MANAGED_OBJECT);
            }
            ["fault", name, base] => {
                once(place, name, model.data.contains_key(*name))?;
                model.add_fault(name, name, base);
            }
            ["type", name, rest @ ..] => {
                let name = name.trim_end_matches(':').to_owned();
                once(place, &name, model.data.contains_key(&name))?;
                let data = data_type(model, &line, rest)?;
                model.data.insert(name.clone(), data);
                owner = Owner::Data(name);
            }
            ["method", name, "on", kind, rest @ ..] => {
                let same = |known: &Method| known.name == *name && known.service == line.service;
                once(place, name, model.methods.iter().any(same))?;
                let method = method(model, &line, name, kind, rest)?;
                model.methods.push(method);
                owner = Owner::Method;
            }
            ["seen", name, rest @ ..] => seen(model, &line, name, rest)?,
            _ => bail!("{place}: not understood; the top of the file says what a line may be"),
        }
    }
    Ok(())
}

/// `since VERSION` for a type or method that is older than the tables say.
fn seen(model: &mut Model, line: &Line<'_>, name: &str, rest: &[&str]) -> Result<()> {
    let since = since(model, line, rest)?;
    let same = |known: &&mut Method| known.name == name && known.service == line.service;
    let (before, fields) = if let Some(data) = model.data.get_mut(name) {
        (&mut data.since, &mut data.fields)
    } else if let Some(method) = model.methods.iter_mut().find(same) {
        (&mut method.since, &mut method.parameters)
    } else {
        bail!("{}: no type or method {name}", line.place);
    };
    // Fields that were added later stay so.
    for field in fields.iter_mut().filter(|field| field.since == *before) {
        field.since.clone_from(&since);
    }
    *before = since;
    Ok(())
}

fn once(place: Place, name: &str, known: bool) -> Result<()> {
    if known {
        bail!("{place}: {name} is known already; take it out here");
    }
    Ok(())
}

/// `[BASE] [since VERSION]`
fn data_type(model: &Model, line: &Line<'_>, rest: &[&str]) -> Result<DataType> {
    let (parent, rest) = match rest {
        [] | ["since", _] => ("", rest),
        [base, rest @ ..] => (*base, rest),
    };
    Ok(DataType {
        service: line.service,
        parent: parent.to_owned(),
        since: since(model, line, rest)?,
        fields: Vec::new(),
    })
}

/// `[since VERSION] [-> TYPE]`
fn method(model: &Model, line: &Line<'_>, name: &str, on: &str, rest: &[&str]) -> Result<Method> {
    let (rest, answer) = match rest {
        [rest @ .., "->", answer] => (rest, *answer),
        _ => (rest, "void"),
    };
    let (answer, optional) = perhaps(answer);
    Ok(Method {
        name: name.to_owned(),
        service: line.service,
        on: on.to_owned(),
        since: since(model, line, rest)?,
        parameters: Vec::new(),
        answer: Field::new("returnval", answer, optional, ""),
    })
}

/// `FIELD TYPE [since VERSION]`
fn field(model: &Model, line: &Line<'_>) -> Result<Field> {
    let [name, kind, rest @ ..] = line.words.as_slice() else {
        bail!("{}: a field needs a name and a type", line.place);
    };
    let (kind, optional) = perhaps(kind);
    Ok(Field::new(name, kind, optional, &since(model, line, rest)?))
}

fn perhaps(kind: &str) -> (&str, bool) {
    kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true))
}

fn since(model: &Model, line: &Line<'_>, rest: &[&str]) -> Result<String> {
    match rest {
        [] => Ok(String::new()),
        ["since", version] => {
            let known = model.versions.named(version).map(str::to_owned);
            known.with_context(|| format!("{}: no version {version}", line.place))
        }
        other => bail!("{}: `{}` is not understood", line.place, other.join(" ")),
    }
}

/// The message for a name that is not there.
pub(crate) fn missing<'a>(
    choice: &Choice,
    what: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> anyhow::Error {
    let Choice { place, name, .. } = choice;
    match names::nearest(name, names) {
        Some(nearest) => anyhow::anyhow!("{place}: no {what} {name}; nearest: {nearest}"),
        None => anyhow::anyhow!("{place}: no {what} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let text = r#"
AddVersion("vim.version.version15", "vim25", "6.7.3", 0, "vim25")
AddVersionParent("vim.version.version15", "vim.version.version15")
CreateDataType("vmodl.DynamicData", "DynamicData", "vmodl.DataObject", "v", None)
CreateDataType("vim.Known", "Known", "vmodl.DynamicData", "vim.version.version15", None)
"#;
        Model::read(&[("table.py".to_owned(), text.to_owned())]).unwrap()
    }

    #[test]
    fn the_overlay_adds_types_with_their_fields_in_order() {
        let mut model = model();
        let text = "[sso]\ntype New: Known since vim:6.7.3\n  one string?\n  two Known[]\n";
        overlay(&mut model, text).unwrap();
        assert_eq!(model.ancestors("New"), ["Known"]);
        let fields = model.fields("New");
        let shapes: Vec<_> =
            fields.iter().map(|one| (one.name.as_str(), one.optional, one.many)).collect();
        assert_eq!(shapes, [("one", true, false), ("two", false, true)]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, message) in [
            ("type X", "schema/overlay.txt:1: a [SERVICE] must come first"),
            (
                "[vim]\nseen Unknown since vim:6.7.3",
                "schema/overlay.txt:2: no type or method Unknown",
            ),
            ("[vim]\ntype Known", "schema/overlay.txt:2: Known is known already; take it out here"),
            ("[vim]\n# why\ntype X since vim:1", "schema/overlay.txt:3: no version vim:1"),
            ("[vim]\n  one string", "schema/overlay.txt:2: a field of nothing"),
            ("[abc]", "schema/overlay.txt:1: no service abc"),
        ] {
            let error = overlay(&mut model(), text).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let error = Selection::read("[vim]\nmethods X").unwrap_err().to_string();
        assert!(error.starts_with("schema/select.txt:2: not understood"), "{error}");
    }
}
