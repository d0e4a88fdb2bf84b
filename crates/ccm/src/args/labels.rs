//! `--node-labels`.

use std::{collections::BTreeMap, str::FromStr};

use daemon::label::is_value;

const LONGEST_PREFIX: usize = 253;

/// Labels that are valid in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLabels(pub BTreeMap<String, String>);

/// Why a list of labels is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabels {
    /// An entry without `=`.
    #[error("{0:?} is not a valid label; write key=value,key=value")]
    NoValue(String),
    /// A key that Kubernetes refuses.
    #[error(
        "{0:?} is not a valid label key: it has at most 63 letters, digits, '-', '_' and '.', after an optional \
         domain and '/'"
    )]
    Key(String),
    /// A value that Kubernetes refuses.
    #[error(
        "{value:?} is not a valid value of the label {key}: it has at most 63 letters, digits, '-', '_' and '.', and \
         begins and ends with a letter or digit"
    )]
    Value {
        /// The label's key.
        key: String,
        /// The value as given.
        value: String,
    },
}

impl FromStr for NodeLabels {
    type Err = InvalidLabels;

    fn from_str(text: &str) -> Result<Self, InvalidLabels> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let label = |word: &str| {
            let (key, value) =
                word.split_once('=').ok_or_else(|| InvalidLabels::NoValue(word.to_owned()))?;
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            if !is_key(&key) {
                return Err(InvalidLabels::Key(key));
            }
            if !value.is_empty() && !is_value(&value) {
                return Err(InvalidLabels::Value { key, value });
            }
            Ok((key, value))
        };
        words.map(label).collect::<Result<_, _>>().map(Self)
    }
}

fn is_key(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return is_value(text) };
    let part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty()
            && part.bytes().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    domain.len() <= LONGEST_PREFIX && domain.split('.').all(part) && is_value(name)
}
