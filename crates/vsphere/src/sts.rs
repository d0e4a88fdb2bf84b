//! Tokens: SAML assertions from vCenter's token service.

use secrecy::SecretString;

use crate::{error::Error, wire::Wire};

/// A SAML token.
#[derive(Debug, Clone)]
pub struct Token(SecretString);

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct KeyPair(SecretString);

impl Token {
    pub(crate) fn subject(&self) -> &str {
        "token"
    }
    pub(crate) fn same(&self, _other: &Self) -> bool {
        false
    }
    pub(crate) fn header(&self) -> SecretString {
        self.0.clone()
    }
}

impl KeyPair {
    pub(crate) fn same(&self, _other: &Self) -> bool {
        false
    }
}

pub(crate) async fn issue_by_certificate(_wire: &Wire, pair: &KeyPair) -> Result<Token, Error> {
    Ok(Token(pair.0.clone()))
}
