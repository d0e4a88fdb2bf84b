//! The lab's certificates: one authority for the cluster, one for the aggregation layer.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;

/// Signs certificates; its own certificate lies in `dir/NAME.crt`.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
    name: String,
}

/// The subject of a certificate.
#[derive(Debug, Default)]
pub(crate) struct Identity<'a> {
    /// The user name for a client, or the server's name.
    pub(crate) common_name: &'a str,
    /// The group, for a client.
    pub(crate) organization: Option<&'a str>,
    /// Names a server is reached by.
    pub(crate) names: &'a [&'a str],
    /// Addresses a server is reached at.
    pub(crate) addresses: &'a [IpAddr],
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes a new authority.
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&format!("vsphere-lab {name}"), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        write_private(&dir.join(format!("{name}.key")), &key.serialize_pem())?;
        let issuer = CertifiedIssuer::self_signed(params, key)?;
        fs::write(dir.join(format!("{name}.crt")), issuer.pem())?;
        Ok(Self { issuer, dir: dir.to_owned(), name: name.to_owned() })
    }

    /// The authority's own certificate and key.
    pub(crate) fn own(&self) -> Credentials {
        credentials(&self.dir, &self.name)
    }

    /// Makes `dir/NAME.crt` and `dir/NAME.key` for this identity, good for clients and servers.
    pub(crate) fn issue(&self, name: &str, identity: &Identity<'_>) -> Result<Credentials> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(identity.common_name, identity.organization);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        for name in identity.names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        params.subject_alt_names.extend(identity.addresses.iter().copied().map(SanType::IpAddress));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let files = credentials(&self.dir, name);
        fs::write(&files.certificate, certificate.pem())?;
        write_private(&files.key, &key.serialize_pem())?;
        Ok(files)
    }
}

/// A key pair of its own for signing service-account tokens: the private key, then the public one.
pub(crate) fn signing_keys(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let pair = KeyPair::generate()?;
    let (private, public) = (dir.join("service-accounts.key"), dir.join("service-accounts.pub"));
    write_private(&private, &pair.serialize_pem())?;
    fs::write(&public, pair.public_key_pem())?;
    Ok((private, public))
}

/// Writes a kubeconfig that names its certificates by path, so that reading it shows no secret.
pub(crate) fn write_kubeconfig(
    path: &Path,
    server: &str,
    authority: &Path,
    client: &Credentials,
) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "lab", "user": {"client-certificate": client.certificate, "client-key": client.key}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    });
    fs::write(path, serde_json::to_vec_pretty(&config)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn credentials(dir: &Path, name: &str) -> Credentials {
    Credentials {
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
