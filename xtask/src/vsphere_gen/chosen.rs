//! Works out what the selection needs: types of fields, families of subtypes, and where a type contains itself.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use super::{
    model::{Field, Method, Model, Of, Service},
    schema::{Choice, Selection, missing},
    versions::Since,
};

/// Everything that will be generated.
pub(crate) struct Chosen<'a> {
    pub(crate) model: &'a Model,
    selection: &'a Selection,
    /// Methods, and whether the answer is read by hand.
    pub(crate) methods: Vec<(&'a Method, bool)>,
    pub(crate) data: BTreeSet<String>,
    pub(crate) enums: BTreeSet<String>,
    pub(crate) kinds: BTreeSet<String>,
    /// Types that a field has, as opposed to those that are only a subtype or a property.
    declared: BTreeSet<String>,
}

impl<'a> Chosen<'a> {
    pub(crate) fn new(model: &'a Model, selection: &'a Selection) -> Result<Self> {
        let (methods, data, enums) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let (kinds, declared) = (BTreeSet::new(), BTreeSet::new());
        let mut chosen = Self { model, selection, methods, data, enums, kinds, declared };
        chosen.choose_methods()?;
        chosen.choose_types()?;
        for choice in &selection.kinds {
            let known = model.kind_ancestors(&choice.name).is_some();
            ensure!(known, missing(choice, "kind", model.kind_names()));
            chosen.add_kind(&choice.name);
        }
        chosen.check()?;
        Ok(chosen)
    }

    fn choose_methods(&mut self) -> Result<()> {
        for (choice, raw) in &self.selection.methods {
            let model = self.model;
            let of_service = || model.methods.iter().filter(|one| one.service == choice.service);
            let mut same = of_service().filter(|one| one.name == choice.name);
            let Some(method) = same.next() else {
                let names = of_service().map(|one| one.name.as_str());
                return Err(missing(choice, "method", names));
            };
            if let Some(second) = same.next() {
                bail!("{}: {} and {} both have it", choice.place, method.on, second.on);
            }
            self.add_kind(&method.on);
            let answer = (!raw).then_some(&method.answer);
            for field in method.parameters.iter().chain(answer) {
                self.add_field(&method.name, field)?;
            }
            self.methods.push((method, *raw));
        }
        Ok(())
    }

    fn choose_types(&mut self) -> Result<()> {
        for (choice, fields) in &self.selection.types {
            let model = self.model;
            let names = || {
                let of_service = |name: &&str| {
                    model.data[*name].service == choice.service && !model.is_fault(name)
                };
                model.data.keys().map(String::as_str).filter(of_service)
            };
            let prefix = choice.name.strip_suffix('*');
            let wanted = |name: &&str| {
                prefix.map_or(*name == choice.name, |prefix| name.starts_with(prefix))
            };
            let found: Vec<&str> = names().filter(wanted).collect();
            ensure!(!found.is_empty(), missing(choice, "type", names()));
            for field in fields.iter().flatten() {
                let known = model.fields(&choice.name);
                ensure!(
                    known.iter().any(|one| one.name == *field),
                    "{}: {} has no field {field}",
                    choice.place,
                    choice.name
                );
            }
            for name in found {
                self.add_data(name)?;
            }
        }
        Ok(())
    }

    fn add_kind(&mut self, kind: &str) {
        let model = self.model;
        let ancestors = model.kind_ancestors(kind).unwrap_or_default();
        self.kinds.extend(ancestors.into_iter().chain([kind]).map(str::to_owned));
    }

    fn add_field(&mut self, owner: &str, field: &Field) -> Result<()> {
        let of = self.of(owner, field);
        match of.with_context(|| format!("{owner}.{}", field.name))? {
            Of::Data(name) => {
                self.add_data(&name)?;
                self.declared.insert(name);
            }
            Of::Enum(name) => {
                self.enums.insert(name);
            }
            Of::Reference(kind) => self.add_kind(&kind),
            Of::Simple(_) | Of::Fault => {}
        }
        Ok(())
    }

    fn add_data(&mut self, name: &str) -> Result<()> {
        if self.data.insert(name.to_owned()) {
            for field in self.fields(name) {
                self.add_field(name, field)?;
            }
        }
        Ok(())
    }

    /// The lines of the selection that nothing above looked at.
    fn check(&self) -> Result<()> {
        for (base, choice) in &self.selection.defaults {
            let variants = self.family(base).unwrap_or_default();
            let names = variants.iter().copied();
            ensure!(
                variants.contains(&choice.name.as_str()),
                missing(choice, &format!("subtype of {base} called"), names)
            );
        }
        for choice in &self.selection.boxes {
            let (owner, name) = choice.name.split_once('.').unwrap_or((&choice.name, ""));
            let known = self.data.contains(owner)
                && self.fields(owner).iter().any(|field| field.name == name);
            ensure!(known, "{}: no field {}", choice.place, choice.name);
        }
        for (field, choice) in &self.selection.texts {
            let (owner, name) = field.split_once('.').unwrap_or((field, ""));
            ensure!(
                self.fields(owner).iter().any(|one| one.name == name && one.kind == "string"),
                "{}: {owner} has no field {name} that is a string",
                choice.place
            );
            let names = self.model.enums.keys().map(String::as_str);
            ensure!(
                self.model.enums.contains_key(&choice.name),
                missing(choice, "enumeration", names)
            );
        }
        Ok(())
    }

    /// The fields of a data type that are wanted, in the order of the wire.
    pub(crate) fn fields(&self, name: &str) -> Vec<&'a Field> {
        let mut fields = self.model.fields(name);
        let cut = self.selection.types.iter().find(|(choice, _)| choice.name == name);
        if let Some((_, Some(wanted))) = cut {
            fields.retain(|field| wanted.contains(&field.name));
        }
        fields
    }

    /// What a field or a parameter holds.
    pub(crate) fn of(&self, owner: &str, field: &Field) -> Result<Of> {
        match self.selection.texts.get(&format!("{owner}.{}", field.name)) {
            Some(choice) => Ok(Of::Enum(choice.name.clone())),
            None => self.model.of(&field.kind),
        }
    }

    /// When a field came, given the version of its owner: what is not newer than that needs no mark.
    pub(crate) fn since(&self, owner: &str, field: &Field) -> Option<Since> {
        let versions = &self.model.versions;
        let held = match self.model.of(&field.kind).ok()? {
            Of::Data(name) => versions.since(&self.model.data[&name].since),
            Of::Enum(name) => versions.since(&self.model.enums[&name].since),
            Of::Simple(_) | Of::Reference(_) | Of::Fault => None,
        };
        let since = match (versions.since(&field.since), held) {
            (Some(own), Some(held)) if own.line == held.line => own.max(held),
            (own, held) => own.or(held)?,
        };
        let covers = |owner: Since| owner.line == since.line && owner.rank >= since.rank;
        let covered = versions.since(owner).is_some_and(covers);
        (!covered).then_some(since)
    }

    /// The chosen subtypes of a type that a field has; nothing if there are none.
    pub(crate) fn family(&self, base: &str) -> Option<Vec<&str>> {
        if !self.declared.contains(base) {
            return None;
        }
        let inherits = |name: &&str| self.model.ancestors(name).contains(&base);
        let variants: Vec<&str> = self.data.iter().map(String::as_str).filter(inherits).collect();
        (!variants.is_empty()).then_some(variants)
    }

    /// What a missing `xsi:type` means, if not the base.
    pub(crate) fn default_of(&self, base: &str) -> Option<&Choice> {
        self.selection.defaults.get(base)
    }

    /// Whether a field must be boxed: when it is too large, or leads back to its owner without a list between.
    pub(crate) fn boxed(&self, owner: &str, field: &Field) -> bool {
        let name = format!("{owner}.{}", field.name);
        self.selection.boxes.iter().any(|choice| choice.name == name)
            || self.recursive(owner, field)
    }

    fn recursive(&self, owner: &str, field: &Field) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = self.contained(owner, field);
        while let Some(name) = open.pop() {
            if name == owner {
                return true;
            }
            if seen.insert(name.clone()) {
                for field in self.fields(&name) {
                    open.extend(self.contained(&name, field));
                }
            }
        }
        false
    }

    /// The data types that can stand directly in a field.
    fn contained(&self, owner: &str, field: &Field) -> Vec<String> {
        match self.of(owner, field) {
            Ok(Of::Data(name)) if !field.many => {
                let variants = self.family(&name).unwrap_or_default();
                variants.into_iter().map(str::to_owned).chain([name.clone()]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Every data type and enumeration by the service in whose file it stands.
    pub(crate) fn homes(&self) -> BTreeMap<&str, Service> {
        let data = self.data.iter().map(|name| (name.as_str(), self.model.data[name].service));
        let enums = self.enums.iter().map(|name| (name.as_str(), self.model.enums[name].service));
        data.chain(enums).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
AddVersion("vim.version.version15", "vim25", "6.7.3", 0, "vim25")
AddVersion("vim.version.v8", "vim25", "8.0.0.0", 0, "vim25")
AddVersionParent("vim.version.version15", "vim.version.version15")
AddVersionParent("vim.version.v8", "vim.version.version15")
AddVersionParent("vim.version.v8", "vim.version.v8")
CreateDataType("vim.Base", "Base", "vmodl.DynamicData", "vim.version.version15", [("next", "vim.Base", "vim.version.version15", F_OPTIONAL), ("all", "vim.Base[]", "vim.version.version15", F_OPTIONAL)])
CreateDataType("vim.Sub", "Sub", "vim.Base", "vim.version.version15", [("late", "vim.Late", "vim.version.version15", F_OPTIONAL)])
CreateDataType("vim.Other", "Other", "vim.Base", "vim.version.version15", None)
CreateDataType("vim.Late", "Late", "vmodl.DynamicData", "vim.version.v8", [("text", "string", "vim.version.v8", 0)])
CreateManagedType("vim.VM", "VM", "vmodl.ManagedObject", "vim.version.version15", None, [("go", "Go", "vim.version.version15", (), (0, "void", "void"), None, None)])
"#;

    fn model() -> Model {
        Model::read(&[("table.py".to_owned(), TABLE.to_owned())]).unwrap()
    }

    #[test]
    fn only_chosen_subtypes_make_a_family() {
        let model = model();
        let selection = Selection::read("[vim]\ntype Sub\n").unwrap();
        let chosen = Chosen::new(&model, &selection).unwrap();
        assert_eq!(chosen.family("Base"), Some(vec!["Sub"]));
        assert_eq!(chosen.family("Sub"), None);
    }

    #[test]
    fn a_field_that_leads_back_is_boxed_unless_it_is_a_list() {
        let model = model();
        let selection = Selection::read("[vim]\ntype Sub\n").unwrap();
        let chosen = Chosen::new(&model, &selection).unwrap();
        let boxed: Vec<bool> =
            chosen.fields("Sub").into_iter().map(|field| chosen.boxed("Sub", field)).collect();
        assert_eq!(boxed, [true, false, false]);
    }

    #[test]
    fn a_field_is_as_new_as_its_type_and_its_owners_mark_is_not_repeated() {
        let model = model();
        let selection = Selection::read("[vim]\ntype Sub: late\n").unwrap();
        let chosen = Chosen::new(&model, &selection).unwrap();
        let marked = |owner: &str| {
            let since = &model.data[owner].since;
            chosen.fields(owner).into_iter().all(|field| chosen.since(since, field).is_some())
        };
        assert!(marked("Sub"));
        assert!(!marked("Late"));
    }

    #[test]
    fn a_wrong_name_is_an_error_with_its_line_and_its_neighbour() {
        let model = model();
        for (text, message) in [
            ("[vim]\nmethod Goo", "schema/select.txt:2: no method Goo; nearest: Go"),
            ("[vim]\n\ntype Suc", "schema/select.txt:3: no type Suc; nearest: Sub"),
            ("[pbm]\ntype Sub", "schema/select.txt:2: no type Sub"),
            ("[vim]\nkind WM", "schema/select.txt:2: no kind WM; nearest: VM"),
            ("[vim]\ntype Sub: lat", "schema/select.txt:2: Sub has no field lat"),
            ("[vim]\nbox Sub.late", "schema/select.txt:2: no field Sub.late"),
        ] {
            let error = Chosen::new(&model, &Selection::read(text).unwrap()).err().unwrap();
            assert_eq!(error.to_string(), message);
        }
    }
}
