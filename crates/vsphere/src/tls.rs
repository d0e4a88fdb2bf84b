//! Which certificates are accepted as vCenter's.
//!
//! A certificate is accepted because an authority vouches for it, or because the user gave its thumbprint or the
//! certificate itself. Signatures of the handshake are checked in every case, so that a pinned
//! certificate also proves possession of its key. Only [`Trust::Insecure`] accepts anything.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

/// How the certificate of a vCenter is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// By an authority, or by a pinned thumbprint.
    Verify {
        /// The authorities.
        roots: Roots,
        /// A certificate that is accepted without an authority. vCenter's own are signed by an authority that
        /// no machine knows, and users copy this from its pages.
        thumbprint: Option<Thumbprint>,
    },
    /// Not at all: any server that answers gets the password.
    Insecure,
}

/// Authorities that vouch for certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Those of the operating system.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

/// By the authorities of the system.
impl Default for Trust {
    fn default() -> Self {
        Self::Verify { roots: Roots::System, thumbprint: None }
    }
}

/// The digest of a certificate, SHA-1 or SHA-256, written `AB:CD:…` or without colons.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Thumbprint(Vec<u8>);

/// A text that is not a thumbprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid thumbprint: it must have 20 (SHA-1) or 32 (SHA-256) pairs of hexadecimal digits"
)]
pub struct InvalidThumbprint(String);

/// The settings of TLS cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are explained by the texts that they are shown in")]
pub enum InvalidTrust {
    #[error("{} cannot be used as a list of authorities: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("the authorities of this system cannot be used: {0}; give a CA file or a thumbprint")]
    System(String),
}

impl Thumbprint {
    /// The digest of a certificate, by the algorithm of another one or by SHA-256.
    fn of(certificate: &[u8], like: Option<&Self>) -> Self {
        match like {
            Some(Self(digest)) if digest.len() == 20 => Self(Sha1::digest(certificate).to_vec()),
            _ => Self(Sha256::digest(certificate).to_vec()),
        }
    }
}

impl FromStr for Thumbprint {
    type Err = InvalidThumbprint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidThumbprint(text.to_owned());
        let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 40 && digits.len() != 64 {
            return Err(invalid());
        }
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(byte).collect::<Option<_>>().map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a certificate was refused, with what the user needs to decide whether to accept it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are explained by the texts that they are shown in")]
pub enum Untrusted {
    #[error(
        "its certificate does not have the thumbprint {expected}; if vCenter's certificate was renewed, compare \
         with its own pages and set the thumbprint to {actual}"
    )]
    OtherCertificate { expected: Thumbprint, actual: Thumbprint },
    #[error(
        "{problem}; give the CA that signed it, or compare with vCenter's own pages and set the thumbprint to \
         {actual}"
    )]
    Unknown { problem: String, actual: Thumbprint },
}

impl Trust {
    /// The configuration for connections to one server.
    pub(crate) fn config(&self) -> Result<ClientConfig, InvalidTrust> {
        let provider = Arc::new(ring::default_provider());
        let (trust, ours) = (self.clone(), Arc::clone(&provider));
        let mut verifier = Verifier { trust, roots: None, leaves: Vec::new(), provider: ours };
        if let Self::Verify { roots, thumbprint } = self {
            verifier.roots = match roots.verifier(&provider) {
                // The pinned certificate is enough where there are no authorities, as in small images.
                Err(InvalidTrust::System(_)) if thumbprint.is_some() => None,
                found => Some(found?),
            };
            if let Roots::File(_) = roots {
                verifier.leaves = roots.certificates().unwrap_or_default();
            }
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| InvalidTrust::System(error.to_string()))?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

impl Roots {
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, InvalidTrust> {
        let refuse = |problem: String| match self {
            Self::System => InvalidTrust::System(problem),
            Self::File(path) => InvalidTrust::File { path: path.clone(), problem },
        };
        let mut store = RootCertStore::empty();
        for certificate in self.certificates().map_err(refuse)? {
            // Systems carry authorities that rustls cannot read; what a user gave must be readable.
            if let Err(error) = store.add(certificate)
                && !matches!(self, Self::System)
            {
                return Err(refuse(format!("invalid certificate: {error}")));
            }
        }
        if store.is_empty() {
            return Err(refuse("invalid certificate: there is none in it".to_owned()));
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
            .build()
            .map_err(|error| refuse(error.to_string()))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let pem = match self {
            Self::System => return Ok(rustls_native_certs::load_native_certs().certs),
            Self::File(path) => std::fs::read(path).map_err(|error| error.to_string())?,
        };
        CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("invalid certificate: {error}"))
    }
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    /// None: there are no authorities.
    roots: Option<Arc<WebPkiServerVerifier>>,
    /// Given by the user; one of them may be the server's own.
    leaves: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trust::Verify { thumbprint: pinned, .. } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let actual = Thumbprint::of(certificate, pinned.as_ref());
        if pinned.as_ref() == Some(&actual) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = match &self.roots {
            Some(roots) => roots.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        // Expiry counts for the server's own certificate as well.
        let unvouched = |error: &rustls::Error| {
            use CertificateError::{Other, UnknownIssuer};
            matches!(error, rustls::Error::InvalidCertificate(UnknownIssuer | Other(_)))
        };
        if verified.as_ref().is_err_and(unvouched) && self.is_given(certificate, name) {
            return Ok(ServerCertVerified::assertion());
        }
        verified.map_err(|error| {
            let refused = match pinned.clone() {
                Some(expected) => Untrusted::OtherCertificate { expected, actual },
                None => Untrusted::Unknown { problem: explain(&error), actual },
            };
            rustls::Error::Other(OtherError(Arc::new(refused)))
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Whether the user gave the server's own certificate, which no authority of the list vouches for, and it is for
    /// this name.
    fn is_given(&self, certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
        self.leaves.contains(certificate)
            && ParsedCertificate::try_from(certificate)
                .is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
    }
}

fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no authority that we know signed its certificate".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another name".to_owned(),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired".to_owned(),
        other => format!("its certificate was refused ({other})"),
    }
}
