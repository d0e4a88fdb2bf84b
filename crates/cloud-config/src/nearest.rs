//! The known name that was probably meant.

/// The candidate with the fewest edits, if there are few enough for it to be a slip.
pub(crate) fn nearest<S: AsRef<str>>(
    name: &str,
    candidates: impl IntoIterator<Item = S>,
) -> Option<S> {
    let folded = fold(name);
    candidates
        .into_iter()
        .map(|candidate| (edits(&folded, &fold(candidate.as_ref())), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.as_ref().len() / 3).min(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Case, dashes and underscores are what people confuse most; they count for nothing.
fn fold(name: &str) -> String {
    name.replace(['-', '_'], "").to_lowercase()
}

/// How far off a name is; the beginning of a longer one is close to it.
fn edits(name: &str, candidate: &str) -> usize {
    let begun = name.len() > 3 && candidate.starts_with(name);
    strsim::osa_distance(name, candidate).min(if begun { 1 } else { usize::MAX })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_understood_and_other_words_are_not() {
        let known = ["user", "password", "secretName", "secretNamespace", "port"];
        let cases = [
            ("passwrod", Some("password")),
            ("secret-name", Some("secretName")),
            ("secretNamspace", Some("secretNamespace")),
            ("usr", Some("user")),
            ("prot", Some("port")),
            ("pass", Some("password")),
            ("colour", None),
            ("", None),
        ];
        for (name, meant) in cases {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
    }
}
