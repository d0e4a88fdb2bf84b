//! The API as the tables and the overlay describe it, by the names of the wire.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::{
    literals::{self, Literal, OPTIONAL},
    versions::Versions,
};

/// A service, which is also a file of generated types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Vim,
    Cns,
    Pbm,
    Vslm,
    Sso,
}

impl Service {
    pub(crate) const ALL: [Self; 5] = [Self::Vim, Self::Cns, Self::Pbm, Self::Vslm, Self::Sso];

    /// The name of its file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Vim => "vim",
            Self::Cns => "cns",
            Self::Pbm => "pbm",
            Self::Vslm => "vslm",
            Self::Sso => "sso",
        }
    }

    /// Versions count per service, so the version that brought something tells its service.
    fn of_version(since: &str) -> Self {
        match since.split('.').next() {
            Some("vsan") => Self::Cns,
            Some("pbm") => Self::Pbm,
            Some("vslm") => Self::Vslm,
            _ => Self::Vim,
        }
    }
}

/// A field of a data type, a parameter or the answer of a method.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) many: bool,
    pub(crate) optional: bool,
    /// The tables' name of the version that brought it.
    pub(crate) since: String,
}

impl Field {
    /// A field of a kind as the tables write it: `[]` behind makes it a list.
    pub(crate) fn new(name: &str, kind: &str, optional: bool, since: &str) -> Self {
        let (kind, many) = kind.strip_suffix("[]").map_or((kind, false), |kind| (kind, true));
        let (name, kind, since) = (name.to_owned(), kind.to_owned(), since.to_owned());
        Self { name, kind, many, optional, since }
    }
}

/// A data type. `parent` is a wire name or one of the tables.
#[derive(Debug)]
pub(crate) struct DataType {
    pub(crate) service: Service,
    pub(crate) parent: String,
    pub(crate) since: String,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct EnumType {
    pub(crate) service: Service,
    pub(crate) since: String,
    pub(crate) values: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) service: Service,
    pub(crate) on: String,
    pub(crate) since: String,
    pub(crate) parameters: Vec<Field>,
    pub(crate) answer: Field,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Of {
    /// A simple type, by its name in Rust.
    Simple(&'static str),
    Data(String),
    Enum(String),
    /// A reference to a managed object of this kind.
    Reference(String),
    Fault,
}

/// Simple types: of the tables and the overlay, and in Rust.
const SIMPLE: &[(&str, &str)] = &[
    ("string", "String"),
    ("vmodl.MethodName", "String"),
    ("vmodl.PropertyPath", "String"),
    ("vmodl.TypeName", "String"),
    ("vmodl.Binary", "String"),
    ("vmodl.URI", "String"),
    ("boolean", "bool"),
    ("byte", "i16"),
    ("short", "i16"),
    ("int", "i32"),
    ("long", "i64"),
    ("float", "f64"),
    ("double", "f64"),
    ("vmodl.DateTime", "Timestamp"),
    ("dateTime", "Timestamp"),
    ("anyType", "Value"),
    ("void", "()"),
];

/// The root of all faults, and the first below it; pyVmomi defines these two by hand.
pub(crate) const METHOD_FAULT: &str = "MethodFault";
const RUNTIME_FAULT: &str = "RuntimeFault";

/// The root of all data types. Its fields are reserved: no client sends them.
const ROOT: &str = "DynamicData";

/// The root of all managed objects.
pub(crate) const MANAGED_OBJECT: &str = "ManagedObject";

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) data: BTreeMap<String, DataType>,
    pub(crate) enums: BTreeMap<String, EnumType>,
    pub(crate) methods: Vec<Method>,
    pub(crate) versions: Versions,
    /// The parents of managed kinds, as the tables write them.
    kinds: BTreeMap<String, String>,
    /// The wire's names by the tables' own.
    wire: BTreeMap<String, String>,
}

impl Model {
    /// Reads the tables, given with the names of their files.
    pub(crate) fn read(tables: &[(String, String)]) -> Result<Self> {
        let mut model = Self::default();
        model.add_fault("vmodl.MethodFault", METHOD_FAULT, ROOT);
        model.add_fault("vmodl.RuntimeFault", RUNTIME_FAULT, METHOD_FAULT);
        model.name("vmodl.ManagedObject", MANAGED_OBJECT);
        model.add_kind(MANAGED_OBJECT, "");
        for (file, text) in tables {
            for (number, line) in text.lines().enumerate() {
                let added = match literals::call(line) {
                    Ok(Some((function, arguments))) => model.add(function, &arguments),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                };
                added.with_context(|| format!("{file}:{}", number + 1))?;
            }
        }
        model.versions.arrange()?;
        Ok(model)
    }

    fn add(&mut self, function: &str, arguments: &[Literal]) -> Result<()> {
        let text = |at: usize| arguments.get(at).map(Literal::text).unwrap_or_default();
        let list = |at: usize| arguments.get(at).map(Literal::list).unwrap_or_default();
        match function {
            "AddVersion" => self.versions.add(text(0), text(2)),
            "AddVersionParent" => self.versions.add_parent(text(0), text(1)),
            "CreateDataType" => {
                let fields = list(4).iter().map(field).collect::<Result<_>>()?;
                let (parent, since) = (text(2).to_owned(), text(3).to_owned());
                let service = Service::of_version(&since);
                self.name(text(0), text(1));
                let known = DataType { service, parent, since, fields };
                ensure!(self.data.insert(text(1).to_owned(), known).is_none(), "{} again", text(1));
            }
            "CreateEnumType" => {
                let values = list(3).iter().map(|value| value.text().to_owned()).collect();
                let since = text(2).to_owned();
                self.name(text(0), text(1));
                let known = EnumType { service: Service::of_version(&since), since, values };
                ensure!(
                    self.enums.insert(text(1).to_owned(), known).is_none(),
                    "{} again",
                    text(1)
                );
            }
            "CreateManagedType" => {
                self.name(text(0), text(1));
                self.add_kind(text(1), text(2));
                for one in list(5) {
                    self.methods.push(method(text(1), one.list())?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn name(&mut self, table: &str, wire: &str) {
        self.wire.insert(table.to_owned(), wire.to_owned());
    }

    pub(crate) fn add_kind(&mut self, kind: &str, parent: &str) {
        self.kinds.insert(kind.to_owned(), parent.to_owned());
    }

    /// A fault of which only its place is known.
    pub(crate) fn add_fault(&mut self, table: &str, wire: &str, parent: &str) {
        self.name(table, wire);
        let (parent, since, fields) = (parent.to_owned(), String::new(), Vec::new());
        let known = DataType { service: Service::Vim, parent, since, fields };
        self.data.insert(wire.to_owned(), known);
    }

    /// The wire's name of what the tables or the overlay name.
    fn wire<'a>(&'a self, name: &'a str) -> &'a str {
        self.wire.get(name).map_or(name, String::as_str)
    }

    /// A data type's ancestors, the nearest first, without the root of all.
    pub(crate) fn ancestors(&self, name: &str) -> Vec<&str> {
        let mut chain = Vec::new();
        let mut known = self.data.get(name);
        while let Some(parent) = known.map(|data| self.wire(&data.parent)) {
            if parent == ROOT || parent.is_empty() {
                break;
            }
            chain.push(parent);
            known = self.data.get(parent);
        }
        chain
    }

    pub(crate) fn is_fault(&self, name: &str) -> bool {
        name == METHOD_FAULT || self.ancestors(name).contains(&METHOD_FAULT)
    }

    /// All fields of a data type in the order of the wire: those of the base come first.
    pub(crate) fn fields(&self, name: &str) -> Vec<&Field> {
        let chain = self.ancestors(name).into_iter().rev().chain([name]);
        chain.filter_map(|one| self.data.get(one)).flat_map(|data| &data.fields).collect()
    }

    /// The ancestors of a kind of managed object, the nearest first; nothing if there is no such kind.
    pub(crate) fn kind_ancestors(&self, kind: &str) -> Option<Vec<&str>> {
        let mut chain = Vec::new();
        let mut parent = self.wire(self.kinds.get(kind)?);
        while !parent.is_empty() {
            chain.push(parent);
            parent = self.wire(self.kinds.get(parent)?);
        }
        Some(chain)
    }

    pub(crate) fn kind_names(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// What a field of this kind holds.
    pub(crate) fn of(&self, kind: &str) -> Result<Of> {
        if let Some((_, rust)) = SIMPLE.iter().find(|(known, _)| *known == kind) {
            return Ok(Of::Simple(rust));
        }
        let name = self.wire(kind);
        if self.is_fault(name) {
            Ok(Of::Fault)
        } else if self.data.contains_key(name) {
            Ok(Of::Data(name.to_owned()))
        } else if self.enums.contains_key(name) {
            Ok(Of::Enum(name.to_owned()))
        } else if self.kinds.contains_key(name) {
            Ok(Of::Reference(name.to_owned()))
        } else {
            bail!("the type {kind} is unknown; name it in schema/overlay.txt")
        }
    }
}

/// `("name", "type", "version", flags, …)`
fn field(literal: &Literal) -> Result<Field> {
    let [name, kind, since, flags, ..] = literal.list() else {
        bail!("a field has another form than expected: {literal:?}");
    };
    let optional = flags.number() & OPTIONAL != 0;
    Ok(Field::new(name.text(), kind.text(), optional, since.text()))
}

/// `("name", "wire name", "version", (parameters), (flags, "type on the wire", …), …)`
fn method(on: &str, parts: &[Literal]) -> Result<Method> {
    let [_, name, since, parameters, answer, ..] = parts else {
        bail!("a method of {on} has another form than expected");
    };
    let [flags, kind, ..] = answer.list() else {
        bail!("the answer of {} has another form than expected", name.text());
    };
    Ok(Method {
        name: name.text().to_owned(),
        service: Service::of_version(since.text()),
        on: on.to_owned(),
        since: since.text().to_owned(),
        parameters: parameters.list().iter().map(field).collect::<Result<_>>()?,
        answer: Field::new("returnval", kind.text(), flags.number() & OPTIONAL != 0, since.text()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let text = r#"
AddVersion("vim.version.version15", "vim25", "6.7.3", 0, "vim25")
AddVersionParent("vim.version.version15", "vim.version.version15")
CreateDataType("vmodl.DynamicData", "DynamicData", "vmodl.DataObject", "v", [("reserved", "string", "v", 0)])
CreateDataType("vim.Base", "Base", "vmodl.DynamicData", "v", [("first", "string", "v", 0)])
CreateDataType("vim.Sub", "Sub", "vim.Base", "v", [("second", "vim.VM[]", "v", F_OPTIONAL)])
CreateDataType("vim.fault.Late", "Late", "vmodl.RuntimeFault", "v", None)
CreateManagedType("vim.VM", "VM", "vmodl.ManagedObject", "v", None, [("go", "Go_Task", "v", (("a", "int", "v", 0, None),), (0, "vim.VM", "void"), None, None)])
"#;
        Model::read(&[("table.py".to_owned(), text.to_owned())]).unwrap()
    }

    #[test]
    fn fields_of_the_base_come_first_and_reserved_ones_not_at_all() {
        let model = model();
        let names: Vec<&str> =
            model.fields("Sub").into_iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
    }

    #[test]
    fn kinds_of_fields_are_told_apart() {
        let model = model();
        for (kind, of) in [
            ("vim.VM", Of::Reference("VM".to_owned())),
            ("vmodl.MethodFault", Of::Fault),
            ("vim.fault.Late", Of::Fault),
            ("vim.Base", Of::Data("Base".to_owned())),
            ("vmodl.DateTime", Of::Simple("Timestamp")),
        ] {
            assert_eq!(model.of(kind).unwrap(), of);
        }
        assert!(model.of("vim.Unheard").is_err());
    }

    #[test]
    fn an_unexpected_form_is_an_error_with_its_place() {
        let text = "\nCreateDataType(\"a\", \"b\", \"c\", \"d\", [(\"one\",)])";
        let error = Model::read(&[("table.py".to_owned(), text.to_owned())]).unwrap_err();
        assert!(format!("{error:#}").starts_with("table.py:2: a field has another form"));
    }
}
