//! XML signatures of the one form that we need: over the timestamp and the body of an envelope, RSA with
//! SHA-256.
//!
//! Signatures are over the canonical form (exclusive C14N). There is no canonicalisation here: what is signed
//! is written canonically in the first place, each part with the namespaces it uses, attributes in order, and
//! nothing in it comes from users. So the bytes that are sent are the bytes that are signed.

use std::{fmt, sync::Arc};

use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::Signer,
};
use sha2::{Digest, Sha256};

use super::{DS, EXCLUSIVE, RSA_SHA256, SHA256, base64};

/// A certificate of a solution user and its private key, an RSA key.
#[derive(Clone)]
pub struct KeyPair {
    certificate: CertificateDer<'static>,
    signer: Arc<dyn Signer>,
}

/// A certificate and key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be used: {problem}")]
pub struct InvalidKeyPair {
    what: &'static str,
    problem: String,
}

/// Neither certificate nor key.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPair")
    }
}

impl KeyPair {
    /// The first certificate and the private key of PEM texts; they may be the same text.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, InvalidKeyPair> {
        let invalid = |what| move |problem: String| InvalidKeyPair { what, problem };
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| error.to_string())
            .map_err(invalid("the certificate"))?;
        let signer = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| error.to_string())
            .and_then(|key| any_supported_type(&key).map_err(|error| error.to_string()))
            .and_then(|key| {
                key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
                    .ok_or_else(|| "it is not an RSA key".to_owned())
            })
            .map_err(invalid("the private key"))?;
        signer.sign(b"").map_err(|error| error.to_string()).map_err(invalid("the private key"))?;
        Ok(Self { certificate, signer: signer.into() })
    }

    /// The certificate as text: base64 of the DER.
    pub(crate) fn certificate(&self) -> String {
        base64(&self.certificate)
    }

    pub(super) fn sign(&self, message: &[u8]) -> String {
        // The key has signed before; an empty signature would be refused.
        base64(self.signer.sign(message).unwrap_or_default())
    }

    /// The signature element over parts that are written canonically, each given by its id.
    pub(super) fn element(&self, id: &str, parts: &[(&str, &str)], key_reference: &str) -> String {
        let references: String = parts.iter().map(|(id, part)| reference(id, part)).collect();
        let signed = format!(
            "<ds:SignedInfo xmlns:ds=\"{DS}\">\
             <ds:CanonicalizationMethod Algorithm=\"{EXCLUSIVE}\"></ds:CanonicalizationMethod>\
             <ds:SignatureMethod Algorithm=\"{RSA_SHA256}\"></ds:SignatureMethod>\
             {references}</ds:SignedInfo>"
        );
        let id = if id.is_empty() { String::new() } else { format!(" Id=\"{id}\"") };
        let value = self.sign(signed.as_bytes());
        format!(
            "<ds:Signature xmlns:ds=\"{DS}\"{id}>{signed}\
             <ds:SignatureValue>{value}</ds:SignatureValue>\
             <ds:KeyInfo>{key_reference}</ds:KeyInfo></ds:Signature>"
        )
    }
}

fn reference(id: &str, part: &str) -> String {
    let digest = base64(Sha256::digest(part));
    format!(
        "<ds:Reference URI=\"#{id}\"><ds:Transforms>\
         <ds:Transform Algorithm=\"{EXCLUSIVE}\"></ds:Transform></ds:Transforms>\
         <ds:DigestMethod Algorithm=\"{SHA256}\"></ds:DigestMethod>\
         <ds:DigestValue>{digest}</ds:DigestValue></ds:Reference>"
    )
}
