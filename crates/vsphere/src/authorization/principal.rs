//! Users and groups by name, in the two spellings that vCenter's services have.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// A user or a group: `VSPHERE.LOCAL\csi`, which `csi@vsphere.local` means too. Upper and lower case are one.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The name in its domain.
    pub name: String,
    /// The domain; empty if unknown.
    pub domain: String,
}

impl From<&str> for Principal {
    fn from(text: &str) -> Self {
        // A name may have an @, as names that are mail addresses do; a domain never has one.
        let (domain, name) = text
            .split_once('\\')
            .or_else(|| text.rsplit_once('@').map(|(name, domain)| (domain, name)))
            .unwrap_or(("", text));
        Self { name: name.to_owned(), domain: domain.to_owned() }
    }
}

/// As the inventory spells it: `VSPHERE.LOCAL\csi`.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}\\{}", self.domain.to_uppercase(), self.name)
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

impl Principal {
    fn folded(&self) -> (String, String) {
        (self.name.to_lowercase(), self.domain.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_the_same_user() {
        let user = Principal::from("csi@vsphere.local");
        assert_eq!(user, Principal::from("VSPHERE.LOCAL\\CSI"));
        assert_eq!(user.to_string(), "VSPHERE.LOCAL\\csi");
        assert_eq!(Principal::from("root").to_string(), "root");
        assert_eq!(Principal::from("a@b@example.com").name, "a@b");
        assert_ne!(user, Principal::from("csi@example.com"));
    }
}
