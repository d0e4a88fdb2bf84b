//! Which known name somebody probably meant.

/// The candidate with the fewest edits, if there are few enough for it to be a slip.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = fold(name);
    candidates
        .into_iter()
        .map(|candidate| (edits(&folded, &fold(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.len() / 3).min(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Case, dashes and underscores are what people confuse most; they count for nothing.
fn fold(name: &str) -> Vec<char> {
    name.chars().filter(|letter| !"-_".contains(*letter)).flat_map(char::to_lowercase).collect()
}

/// How far off a name is; the beginning of a longer one is close to it.
fn edits(name: &[char], candidate: &[char]) -> usize {
    let begun = name.len() > 3 && candidate.starts_with(name);
    distance(name, candidate).min(if begun { 1 } else { usize::MAX })
}

/// Insertions, removals, replacements and swaps of neighbours that lead from one text to the other.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != other);
            let mut edits = replaced.min(last[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && *letter == to[column - 1] && from[row - 1] == *other {
                edits = edits.min(before[column - 1] + 1);
            }
            line.push(edits);
        }
        before = std::mem::replace(&mut last, line);
    }
    last.last().copied().unwrap_or_default()
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
