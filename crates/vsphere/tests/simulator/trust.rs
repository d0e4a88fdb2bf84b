//! Who is accepted as vCenter.

use std::{
    fs,
    process::{Command, Stdio},
};

use lab::{
    VCenter, VCenterSpec,
    vcenter::{ADMINISTRATOR, Certificate},
};
use tokio::{io::AsyncWriteExt, net::TcpListener};
use vsphere::{
    connection::{Connection, Settings},
    error::{Cause, Error, Remedy},
    session::Credentials,
    tls::{Roots, Thumbprint, Trust, Untrusted},
};

use crate::site::vcenter;

fn with(url: &str, trust: Trust) -> Connection {
    let credentials = Credentials::password(ADMINISTRATOR.0, ADMINISTRATOR.1);
    let settings = Settings { trust, ..Settings::new(url.parse().unwrap(), credentials) };
    Connection::new(&settings).unwrap()
}

fn pinned(thumbprint: &str) -> Trust {
    let thumbprint = Some(thumbprint.parse().unwrap());
    Trust::Verify { roots: Roots::System, thumbprint }
}

#[tokio::test]
async fn authorities_thumbprints_and_explicit_carelessness_are_accepted() {
    let spec = VCenterSpec { certificate: Certificate::SelfSigned, ..VCenterSpec::default() };
    let unsigned = VCenter::start(&spec).await.unwrap();
    for trust in [
        pinned(unsigned.thumbprint_sha1()),
        pinned(unsigned.thumbprint_sha256()),
        pinned(&unsigned.thumbprint_sha256().replace(':', "").to_lowercase()),
        Trust::Insecure,
    ] {
        with(unsigned.url(), trust.clone())
            .time()
            .await
            .unwrap_or_else(|e| panic!("{trust:?}: {e}"));
    }
    let signed = vcenter().await;
    let roots = Roots::File(signed.authority().to_owned());
    with(signed.url(), Trust::Verify { roots, thumbprint: None }).time().await.unwrap();
    // A thumbprint that is out of date does not matter while an authority vouches: certificates are renewed.
    let trust = Trust::Verify {
        roots: Roots::File(signed.authority().to_owned()),
        thumbprint: Some("00".repeat(20).parse().unwrap()),
    };
    with(signed.url(), trust).time().await.unwrap();
}

#[tokio::test]
async fn an_ipv6_literal_is_an_address_like_any_other() {
    let vcenter = vcenter().await;
    let url = vcenter.url_ipv6().expect("the simulator listens on ::1 too");
    with(url, pinned(vcenter.thumbprint_sha256())).time().await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_refused_with_the_thumbprint_that_would_accept_it() {
    let vcenter = vcenter().await;
    let error = with(vcenter.url(), Trust::default()).time().await.unwrap_err();
    let Cause::Untrusted { reason: Untrusted::Unknown { actual, .. }, .. } = &error.failure().cause
    else {
        panic!("{error}")
    };
    assert_eq!(actual.to_string(), vcenter.thumbprint_sha256());
    assert!(matches!(error, Error { remedy: Remedy::Unreachable, .. }));
    with(vcenter.url(), pinned(&actual.to_string())).time().await.unwrap();

    let wrong = "11".repeat(20);
    let error = with(vcenter.url(), pinned(&wrong)).time().await.unwrap_err();
    assert!(error.to_string().contains(vcenter.thumbprint_sha1()), "{error}");
}

#[tokio::test]
async fn wrong_hosts_and_ports_are_told_apart() {
    let error = with("no-such-host.invalid", Trust::default()).time().await.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::UnknownHost { .. }), "{error}");

    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let error = with(&format!("127.0.0.1:{port}"), Trust::default()).time().await.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::NoConnection { .. }), "{error}");

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap().to_string();
    let connection = with(&address, Trust::default());
    let answer = async {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
        stream
    };
    let (result, _stream) = tokio::join!(connection.time(), answer);
    let error = result.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::NoTls { .. }), "{error}");
}

#[test]
fn what_is_no_authority_and_no_thumbprint_is_refused_before_anything_is_sent() {
    let settings = |roots| Settings {
        trust: Trust::Verify { roots, thumbprint: None },
        ..Settings::new("vcenter.example".parse().unwrap(), Credentials::password("u", "p"))
    };
    let nothing = tempfile::NamedTempFile::new().unwrap();
    fs::write(&nothing, "nothing").unwrap();
    let error = Connection::new(&settings(Roots::File(nothing.path().into()))).unwrap_err();
    assert!(error.to_string().contains("invalid certificate"), "{error}");
    let error = Connection::new(&settings(Roots::File("/no/such/file".into()))).unwrap_err();
    assert!(error.to_string().contains("/no/such/file"), "{error}");
    for text in ["", "AA", "zz:11", &"0".repeat(63)] {
        assert!(text.parse::<Thumbprint>().is_err(), "{text}");
    }
}

/// The server's own certificate.
fn leaf(vcenter: &VCenter) -> String {
    let address = vcenter.url().strip_prefix("https://").unwrap().split('/').next().unwrap();
    let shown = Command::new("openssl")
        .args(["s_client", "-connect", address])
        .stdin(Stdio::null())
        .output()
        .expect("the program openssl is needed: apt-get install openssl");
    let text = String::from_utf8(shown.stdout).unwrap();
    let end = "-----END CERTIFICATE-----";
    let (begin, after) = (text.find("-----BEGIN").unwrap(), text.find(end).unwrap() + end.len());
    text[begin..after].to_owned()
}

#[tokio::test]
async fn a_list_that_holds_only_the_servers_own_certificate_is_accepted() {
    let signed = vcenter().await;
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(&list, leaf(&signed)).unwrap();
    let own = Trust::Verify { roots: Roots::File(list.path().into()), thumbprint: None };
    with(signed.url(), own.clone()).time().await.unwrap();
    let other = vcenter().await;
    let error = with(other.url(), own).time().await.unwrap_err();
    assert!(matches!(error.failure().cause, Cause::Untrusted { .. }), "{error}");
}
