//! Tokens: SAML assertions of vCenter's token service, which stand for a user for a while.
//!
//! A bearer token is valid for everybody who holds it; a token of a certificate only for requests that are signed
//! with its key. Hides WS-Trust, WS-Security and XML signatures: the rest of the crate requests a token, and the
//! header that proves it.
//!
//! Deliberately absent: renewal (a new one is as cheap), and checking a token's own signature, which is the server's
//! work; and the lookup service: tokens are requested from the vCenter itself, not from an external Platform
//! Services Controller, which ended with vCenter 6.7. Logins by password work there, too.

mod signature;
#[cfg(test)]
mod tests;

use std::{io::Read, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::{Compression, read::GzEncoder};
use hyper::http::{Method, StatusCode};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

pub use self::signature::{InvalidKeyPair, KeyPair};
use crate::{
    budget::Door,
    connection::Connection,
    endpoint::Endpoint,
    error::{Cause, Error},
    http::Reply,
    session::Credentials,
    shared::SharedSession,
    soap::{self, Header},
    version::Release,
    wire::{CONTENT_TYPE, Wire},
    xml::{Element, Malformed, Reader, Writer},
};

const PATH: &str = "/sts/STSService";
const ISSUE: &str = "http://docs.oasis-open.org/ws-sx/ws-trust/200512/RST/Issue";
const WST: &str = "http://docs.oasis-open.org/ws-sx/ws-trust/200512";
const WSSE: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const WSSE11: &str = "http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd";
const WSU: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
const SAML: &str = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#";
const X509: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3";
const BASE64: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";
const DS: &str = "http://www.w3.org/2000/09/xmldsig#";
const EXCLUSIVE: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";
const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";

/// vCenter issues bearer tokens for five minutes at most.
const BEARER: Duration = Duration::from_secs(300);
/// A token of a certificate is only used for one login.
const HOLDER: Duration = Duration::from_secs(1800);
/// How long a request may be on the way.
const ON_THE_WAY: Duration = Duration::from_secs(300);

/// A SAML token.
#[derive(Debug)]
pub(crate) struct Token {
    /// The text.
    assertion: SecretString,
    id: String,
    /// Whose it is: `csi@VSPHERE.LOCAL`.
    pub(crate) subject: String,
    /// What requests are signed with, if the token demands it.
    pair: Option<KeyPair>,
}

impl Token {
    /// The bearer token with this text.
    pub(crate) fn from_text(text: String) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&text);
        let root = reader.root()?;
        if root.name() != "Assertion" {
            return Err(reader.malformed(format!("a {} instead of an Assertion", root.name())));
        }
        let mut subject = String::new();
        while let Some(child) = reader.child(&root)? {
            if child.name() == "Subject"
                && let Some(name) = reader.find(&child, "NameID")?
            {
                subject = reader.text(&name)?.into_owned();
            }
        }
        if subject.is_empty() {
            return Err(reader.malformed("an Assertion without the name of its subject"));
        }
        let id = root.attribute(|key| key == "ID").unwrap_or_default().into_owned();
        Ok(Self { assertion: SecretString::from(text), id, subject, pair: None })
    }

    /// The header that proves the token, for a request with this body.
    pub(crate) fn header(&self, body: &str) -> SecretString {
        let timestamp = timestamp();
        let assertion = self.assertion.expose_secret();
        let signature = self.pair.as_ref().map(|pair| {
            let reference = format!(
                "<wsse:SecurityTokenReference xmlns:wsse11=\"{WSSE11}\" \
                 wsse11:TokenType=\"{SAML}SAMLV2.0\">\
                 <wsse:KeyIdentifier ValueType=\"{SAML}SAMLID\">{}</wsse:KeyIdentifier>\
                 </wsse:SecurityTokenReference>",
                self.id
            );
            pair.element("", &[("timestamp", &timestamp), ("body", body)], &reference)
        });
        security(&format!("{timestamp}{assertion}{}", signature.unwrap_or_default()))
    }
}

impl Connection {
    /// A token for the user of this connection, good for a few minutes.
    pub(crate) async fn token(&self) -> Result<Token, Error> {
        let credentials = self.accepted_credentials().await?;
        let own = self.clone();
        let login = async move {
            let issued = issue_to(own.wire(), &credentials);
            own.session().budget.attempt(own.wire(), Door::Tokens, &credentials, issued).await
        };
        self.session().carry(login).await
    }
}

async fn issue_to(wire: &Wire, credentials: &Credentials) -> Result<Token, Error> {
    match credentials {
        Credentials::Password { user, password } => {
            request(wire, bearer_request(user, password)).await
        }
        Credentials::Certificate(pair) => issue_by_certificate(wire, pair).await,
        Credentials::Shared(shared) => Err(no_token(wire, shared)),
    }
}

/// A clone of a session proves nothing else.
fn no_token(wire: &Wire, shared: &SharedSession) -> Error {
    let refusal = shared.refusal("it issues tickets for sessions, not tokens");
    wire.error("Issue", Cause::NoTicket(refusal))
}

/// The value of REST's `Authorization` that opens a session by a `POST` without body.
pub(crate) async fn authorization(
    wire: &Wire,
    credentials: &Credentials,
    path: &str,
) -> Result<SecretString, Error> {
    match credentials {
        Credentials::Password { user, password } => Ok(basic(user, password)),
        Credentials::Certificate(pair) => {
            let token = issue_by_certificate(wire, pair).await?;
            Ok(signed(wire, &token.assertion, pair, path))
        }
        Credentials::Shared(shared) => Err(no_token(wire, shared)),
    }
}

/// The value of REST's `Authorization` for a token and the key that it is bound to.
fn signed(wire: &Wire, token: &SecretString, pair: &KeyPair, path: &str) -> SecretString {
    let token = base64(gzip(token.expose_secret()));
    let now = Timestamp::now();
    let nonce = format!("{}:{}", now.as_millisecond(), now.subsec_nanosecond());
    let digest = Sha256::digest(b"");
    let signature = pair.sign(&rest_message(&nonce, path, &wire.endpoint, &digest));
    let digest = base64(digest);
    SecretString::from(format!(
        "SIGN token=\"{token}\", signature_alg=\"RSA-SHA256\", signature=\"{signature}\", \
         nonce=\"{nonce}\", bodyhash=\"{digest}\""
    ))
}

/// Base64 with padding.
pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = GzEncoder::new(text.as_bytes(), Compression::default());
    // Neither the text nor the vector can fail.
    encoder.read_to_end(&mut file).unwrap_or_default();
    file
}

/// The value of REST's `Authorization` for a user and a password.
fn basic(user: &str, password: &SecretString) -> SecretString {
    let pair = SecretString::from(format!("{user}:{}", password.expose_secret()));
    SecretString::from(format!("Basic {}", base64(pair.expose_secret().as_bytes())))
}

/// What is signed of a REST request: a line each, and the digest of its body as it is.
fn rest_message(nonce: &str, path: &str, endpoint: &Endpoint, digest: &[u8]) -> Vec<u8> {
    let host = endpoint.host().to_lowercase();
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    // The default port is not in the request, and the server takes it for that of plain HTTP.
    let port = if endpoint.port() == 443 { 80 } else { endpoint.port() };
    let mut message = format!("{nonce}\nPOST\n{path}\n{host}\n{port}\n").into_bytes();
    message.extend(digest);
    message.push(b'\n');
    message
}

/// Requests a token that is bound to the key of a certificate.
pub(crate) async fn issue_by_certificate(wire: &Wire, pair: &KeyPair) -> Result<Token, Error> {
    let token = request(wire, holder_request(pair)).await?;
    Ok(Token { pair: Some(pair.clone()), ..token })
}

async fn request(wire: &Wire, body: SecretString) -> Result<Token, Error> {
    let headers = [CONTENT_TYPE, ("soapaction", ISSUE)];
    let read = |reply: Reply| match reply.status {
        StatusCode::OK | StatusCode::INTERNAL_SERVER_ERROR => answered(&reply.text?),
        status => Err(Cause::Status(status.as_u16())),
    };
    let body = body.expose_secret().to_owned();
    wire.rest("Issue", Method::POST, PATH, &headers, body, read).await
}

/// Finds the token in an answer.
fn answered(text: &str) -> Result<Token, Cause> {
    soap::answer(text, |_, _| Ok(()))?;
    let mut reader = Reader::new(text);
    let root = reader.root()?;
    let found = assertion(&mut reader, &root)?.ok_or_else(|| reader.malformed("no token"))?;
    Ok(Token::from_text(found)?)
}

/// The first assertion below an element, as it is: its own signature is over the text.
fn assertion(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Option<String>, Malformed> {
    while let Some(child) = reader.child(element)? {
        if child.name() == "Assertion" {
            return reader.fragment(&child).map(Some);
        }
        if let Some(found) = assertion(reader, &child)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The request for a bearer token.
fn bearer_request(user: &str, password: &SecretString) -> SecretString {
    let mut writer = Writer::new(Release::OLDEST);
    writer.verbatim(&timestamp());
    writer.open("wsse:UsernameToken");
    writer.leaf("wsse:Username", user);
    writer.leaf("wsse:Password", password.expose_secret());
    writer.close("wsse:UsernameToken");
    envelope(&security(&writer.finish()), &content(BEARER, "Bearer", ""))
}

/// The request for a token of a certificate.
fn holder_request(pair: &KeyPair) -> SecretString {
    let timestamp = timestamp();
    let use_key = "<wst:UseKey Sig=\"signature\"></wst:UseKey>";
    let content = content(HOLDER, "PublicKey", use_key);
    let reference = format!(
        "<wsse:SecurityTokenReference><wsse:Reference URI=\"#certificate\" ValueType=\"{X509}\">\
         </wsse:Reference></wsse:SecurityTokenReference>"
    );
    let body = soap::secured_body(&content);
    let signature =
        pair.element("signature", &[("timestamp", &timestamp), ("body", &body)], &reference);
    let certificate = pair.certificate();
    let header = security(&format!(
        "{timestamp}<wsse:BinarySecurityToken xmlns:wsu=\"{WSU}\" EncodingType=\"{BASE64}\" \
         ValueType=\"{X509}\" wsu:Id=\"certificate\">{certificate}</wsse:BinarySecurityToken>{signature}"
    ));
    envelope(&header, &content)
}

fn envelope(security: &SecretString, content: &str) -> SecretString {
    let header = Header { security: Some(security.expose_secret()), ..Header::default() };
    SecretString::from(soap::envelope(header, content))
}

/// The content of a request for a token. The body around it declares `wsu`.
fn content(lifetime: Duration, key: &str, use_key: &str) -> String {
    let times = times(lifetime);
    format!(
        "<wst:RequestSecurityToken xmlns:wst=\"{WST}\">\
         <wst:TokenType>urn:oasis:names:tc:SAML:2.0:assertion</wst:TokenType>\
         <wst:RequestType>{WST}/Issue</wst:RequestType>\
         <wst:Lifetime>{times}</wst:Lifetime>\
         <wst:Renewing Allow=\"true\" OK=\"false\"></wst:Renewing>\
         <wst:Delegatable>true</wst:Delegatable>\
         <wst:KeyType>{WST}/{key}</wst:KeyType>\
         <wst:SignatureAlgorithm>{RSA_SHA256}</wst:SignatureAlgorithm>{use_key}\
         </wst:RequestSecurityToken>"
    )
}

fn security(content: &str) -> SecretString {
    SecretString::from(format!("<wsse:Security xmlns:wsse=\"{WSSE}\">{content}</wsse:Security>"))
}

/// When the request is made and how long it may be taken; written canonically.
fn timestamp() -> String {
    let times = times(ON_THE_WAY);
    format!("<wsu:Timestamp xmlns:wsu=\"{WSU}\" wsu:Id=\"timestamp\">{times}</wsu:Timestamp>")
}

fn times(lifetime: Duration) -> String {
    let now = Timestamp::now();
    let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
    let show = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    format!("<wsu:Created>{}</wsu:Created><wsu:Expires>{}</wsu:Expires>", show(now), show(end))
}
