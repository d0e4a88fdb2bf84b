//! Turns the wire's names into Rust's.

/// Words that no field can have.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "self", "static", "struct", "super", "trait", "try", "type", "typeof", "unsafe", "unsized",
    "use", "virtual", "where", "while", "yield",
];

/// The words of a name in camel case, as they stand: `diskUUID` has `disk` and `UUID`. A single `v` in front belongs
/// to its word (`vSphereUser`), and so does the `s` of several abbreviations (`ACLs`).
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let upper = |at: usize| letters.get(at).is_some_and(char::is_ascii_uppercase);
    let lower = |at: usize| letters.get(at).is_some_and(char::is_ascii_lowercase);
    let plural = |at: usize| letters.get(at) == Some(&'s') && !lower(at + 1);
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let after_word = at > 0 && !upper(at - 1) && !(at == 1 && letters[0] == 'v');
        let before_word = at > 0 && upper(at - 1) && lower(at + 1) && !plural(at + 1);
        if upper(at) && (after_word || before_word) {
            words.push(String::new());
        }
        if letter.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(*letter);
        } else {
            words.push(String::new());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}

/// The name of a field: `capacityInMb` becomes `capacity_in_mb`.
pub(crate) fn field(name: &str) -> String {
    let name = words(name).join("_").to_ascii_lowercase();
    if KEYWORDS.contains(&name.as_str()) { name + "_" } else { name }
}

/// The name of a method's type: `ReconfigVM_Task` becomes `ReconfigVm`.
pub(crate) fn method(name: &str) -> String {
    let name = name.strip_suffix("_Task").unwrap_or(name);
    words(name).iter().map(|word| capitalised(word)).collect()
}

/// The name of an enumeration's value: `PERSISTENT_VOLUME` becomes `PersistentVolume`.
pub(crate) fn variant(value: &str) -> String {
    let name: String = words(value).iter().map(|word| capitalised(word)).collect();
    // Every enumeration has a variant for what it does not know.
    let taken = name == "Other" || name.starts_with(|first: char| first.is_ascii_digit());
    if taken { format!("Value{name}") } else { name }
}

/// The end of a constant's name for a version: `vSAN 7.0U3` becomes `7_0U3`.
pub(crate) fn version(id: &str) -> String {
    let id = id.strip_prefix("vSAN ").unwrap_or(id);
    id.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_").to_ascii_uppercase()
}

/// The one of these names that is most like the wanted one.
pub(crate) fn nearest<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance =
        |name: &&str| strsim::levenshtein(&wanted.to_ascii_lowercase(), &name.to_ascii_lowercase());
    names.into_iter().min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_snake_case() {
        for (wire, rust) in [
            ("vSphereUser", "vsphere_user"),
            ("diskUUID", "disk_uuid"),
            ("ACLConfigSpecs", "acl_config_specs"),
            ("capacityInMb", "capacity_in_mb"),
            ("netBIOSConfig", "net_bios_config"),
            ("k8sCompliantName", "k8s_compliant_name"),
            ("type", "type_"),
            ("key", "key"),
        ] {
            assert_eq!(field(wire), rust);
        }
    }

    #[test]
    fn methods_are_named_as_rust_names_types() {
        for (wire, rust) in [
            ("ReconfigVM_Task", "ReconfigVm"),
            ("PowerOffVM_Task", "PowerOffVm"),
            ("FindAllByUuid", "FindAllByUuid"),
            ("CnsConfigureVolumeACLs", "CnsConfigureVolumeAcls"),
            ("VslmRetrieveVStorageObject", "VslmRetrieveVStorageObject"),
        ] {
            assert_eq!(method(wire), rust);
        }
    }

    #[test]
    fn values_become_variants() {
        for (wire, rust) in [
            ("BLOCK", "Block"),
            ("PERSISTENT_VOLUME_CLAIM", "PersistentVolumeClaim"),
            ("readOnly", "ReadOnly"),
            ("other", "ValueOther"),
        ] {
            assert_eq!(variant(wire), rust);
        }
    }

    #[test]
    fn versions_become_constants() {
        assert_eq!(version("vSAN 7.0U3"), "7_0U3");
        assert_eq!(version("8.0.1.0"), "8_0_1_0");
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        let names = ["CnsCreateVolume", "CnsDeleteVolume", "Login"];
        assert_eq!(nearest("cnsCreateVolum", names), Some("CnsCreateVolume"));
    }
}
