//! The server's TLS configuration: from files, or with a certificate of its own.

use std::{path::Path, sync::Arc};

use rustls::{
    ALL_VERSIONS, ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};

use crate::reload::Contents;

type Versions = &'static [&'static SupportedProtocolVersion];

/// The versions of TLS from the oldest one on, as `--tls-min-version` names it.
pub(super) fn versions(oldest: &str) -> Versions {
    static NEWEST: [&SupportedProtocolVersion; 1] = [&TLS13];
    if oldest == "VersionTLS13" { &NEWEST } else { ALL_VERSIONS }
}

/// A self-signed certificate for this machine, as upstream's programs make.
pub(super) fn self_signed(names: Vec<String>, versions: Versions) -> Result<ServerConfig, String> {
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    config(vec![made.cert.der().clone()], key, versions)
}

/// The configuration by the files with a certificate and its key.
pub(super) fn from_files(
    certificate: &Path,
    key: &Path,
    versions: Versions,
    files: &Contents,
) -> Result<ServerConfig, String> {
    let of =
        |path: &Path| files.get(path).ok_or_else(|| format!("{} does not exist", path.display()));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(of(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", certificate.display()))?;
    if chain.is_empty() {
        return Err(format!("{}: there is no certificate in it", certificate.display()));
    }
    let key = PrivateKeyDer::from_pem_slice(of(key)?)
        .map_err(|error| format!("{}: {error}", key.display()))?;
    config(chain, key, versions)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    versions: Versions,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    // Refuses a key that does not belong to the certificate: a pair is often replaced one by one.
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_must_belong_together_and_what_is_wrong_is_named() {
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, two) = (make(), make());
        let check = |certificate: &str, key: &str, expected: Result<(), &str>| {
            let files = Contents::from([
                ("tls.crt".into(), certificate.as_bytes().to_vec()),
                ("tls.key".into(), key.as_bytes().to_vec()),
            ]);
            let paths = ["tls.crt", "tls.key"].map(Path::new);
            match (from_files(paths[0], paths[1], versions("VersionTLS12"), &files), expected) {
                (Ok(_), Ok(())) => {}
                (Err(problem), Err(part)) => assert!(problem.contains(part), "{problem}"),
                (result, expected) => panic!("{:?} instead of {expected:?}", result.map(drop)),
            }
        };
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        check(&certificate, &key, Ok(()));
        check(&certificate, &two.signing_key.serialize_pem(), Err("Mismatch"));
        check("nonsense", &key, Err("tls.crt: there is no certificate"));
        check(&certificate, "nonsense", Err("tls.key: "));
    }
}
