//! What a volume is called in CNS, and the id that it gets where clients choose ids.

use vsphere::inventory::Uuid;

use super::journal;

/// The longest name that CNS is known to take.
const LONGEST_NAME: usize = 80;

/// The name of a volume in CNS: the request's, or its beginning with a digest where it is too long.
pub(super) fn cns_name(name: &str) -> String {
    if name.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let digest = journal::digest(name);
    let mut end = LONGEST_NAME - digest.len() - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{digest}", &name[..end])
}

/// The id of a new volume: that of its claim, as the Go driver chooses it, or one that follows from name and cluster.
pub(super) fn chosen_id(name: &str, cluster: &str) -> String {
    let of_claim = name.strip_prefix("pvc-").and_then(|id| id.parse::<Uuid>().ok());
    let digest = || journal::digest(&format!("{cluster}/{name}")).parse::<Uuid>().ok();
    of_claim.or_else(digest).map(|id| id.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{chosen_id, cns_name};

    #[test]
    fn long_names_stay_distinct() {
        let (a, b) = ("x".repeat(100) + "a", "x".repeat(100) + "b");
        assert_eq!(cns_name("pvc-1"), "pvc-1");
        assert_eq!(cns_name(&a).len(), 80);
        assert_ne!(cns_name(&a), cns_name(&b));
        assert!(cns_name(&"ö".repeat(80)).len() <= 80);
    }

    #[test]
    fn the_id_of_a_volume_is_that_of_its_claim_or_follows_from_its_name() {
        let claim = "0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c";
        assert_eq!(chosen_id(&format!("pvc-{claim}"), "lab"), claim);
        assert_eq!(chosen_id("data", "lab"), chosen_id("data", "lab"));
        assert_ne!(chosen_id("data", "lab"), chosen_id("data", "other"));
    }
}
