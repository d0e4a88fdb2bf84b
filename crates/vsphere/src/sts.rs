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

use std::{fmt, io::Read, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::{Compression, read::GzEncoder};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

pub use self::signature::{InvalidKeyPair, KeyPair};
use crate::{
    budget::Door,
    connection::Connection,
    endpoint::Endpoint,
    error::{Cause, Error},
    session::Credentials,
    shared::SharedSession,
    soap::{self, Answer, Header},
    version::Release,
    wire::Wire,
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

/// A SAML token. Its text is a secret.
#[derive(Clone)]
pub struct Token {
    assertion: SecretString,
    id: String,
    subject: String,
    expires: Option<Timestamp>,
    /// What requests are signed with, if the token demands it.
    pair: Option<KeyPair>,
}

/// Without the text.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Token");
        shown
            .field("subject", &self.subject)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// A text that is not a SAML token.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a valid SAML 2.0 token")]
pub struct InvalidToken(#[source] Malformed);

impl Token {
    /// The bearer token with this text: a SAML 2.0 assertion as vCenter's token service issued it.
    pub fn from_text(text: &str) -> Result<Self, InvalidToken> {
        let mut reader = Reader::new(text);
        let root = reader.root().map_err(InvalidToken)?;
        Self::read(&mut reader, &root, None).map_err(InvalidToken)
    }

    /// The text, for another process.
    pub fn text(&self) -> &SecretString {
        &self.assertion
    }

    /// Whose token it is: `csi@VSPHERE.LOCAL`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// When it expires, if it does.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The header that proves the token, for a request with this body.
    pub(crate) fn header(&self, body: &str) -> SecretString {
        let (id, timestamp) = timestamp();
        let assertion = self.assertion.expose_secret();
        let signature = self.pair.as_ref().map(|pair| {
            let reference = format!(
                "<wsse:SecurityTokenReference xmlns:wsse11=\"{WSSE11}\" \
                 wsse11:TokenType=\"{SAML}SAMLV2.0\">\
                 <wsse:KeyIdentifier ValueType=\"{SAML}SAMLID\">{}</wsse:KeyIdentifier>\
                 </wsse:SecurityTokenReference>",
                self.id
            );
            pair.element("", &[(id, &timestamp), ("body", body)], &reference)
        });
        security(&format!("{timestamp}{assertion}{}", signature.unwrap_or_default()))
    }

    /// The value of REST's `Authorization` for a `POST` without body.
    fn authorization(&self, wire: &Wire, path: &str) -> SecretString {
        let mut value = format!("SIGN token=\"{}\"", base64(gzip(self.text().expose_secret())));
        if let (Some(pair), Ok(endpoint)) = (&self.pair, wire.name().parse()) {
            let now = Timestamp::now();
            let nonce = format!("{}:{}", now.as_millisecond(), now.subsec_nanosecond());
            let digest = Sha256::digest(b"");
            let signature = pair.sign(&rest_message(&nonce, path, &endpoint, &digest));
            let digest = base64(digest);
            value.push_str(&format!(
                ", signature_alg=\"RSA-SHA256\", signature=\"{signature}\", nonce=\"{nonce}\", \
                 bodyhash=\"{digest}\""
            ));
        }
        SecretString::from(value)
    }

    /// Reads an assertion.
    fn read(
        reader: &mut Reader<'_>,
        element: &Element<'_>,
        pair: Option<KeyPair>,
    ) -> Result<Self, Malformed> {
        if element.name() != "Assertion" {
            return Err(reader.malformed(format!("a {} instead of an Assertion", element.name())));
        }
        // Its own signature is over the text, so that it is kept as it is.
        let text = reader.fragment(element)?;
        let mut inside = Reader::new(&text);
        let root = inside.root()?;
        let id = root.attribute(|key| key == "ID").unwrap_or_default().into_owned();
        let (mut subject, mut expires) = (String::new(), None);
        while let Some(child) = inside.child(&root)? {
            match child.name() {
                "Subject" => {
                    if let Some(name) = inside.find(&child, "NameID")? {
                        subject = inside.text(&name)?.into_owned();
                    }
                }
                "Conditions" => {
                    let end = child.attribute(|key| key == "NotOnOrAfter");
                    expires = end.and_then(|time| time.parse().ok());
                }
                _ => {}
            }
        }
        if subject.is_empty() {
            return Err(inside.malformed("an Assertion without the name of its subject"));
        }
        Ok(Self { assertion: SecretString::from(text), id, subject, expires, pair })
    }
}

impl Connection {
    /// A token for the user of this connection, good for a few minutes. A connection that logs in by token
    /// gives that one.
    pub async fn token(&self) -> Result<Token, Error> {
        let credentials = self.session().accepted().await?;
        let own = self.clone();
        let login = async move {
            let issued = issue_to(own.wire(), &credentials);
            own.session().budget().attempt(own.wire(), Door::Tokens, &credentials, issued).await
        };
        self.session().carry(login).await
    }
}

async fn issue_to(wire: &Wire, credentials: &Credentials) -> Result<Token, Error> {
    match credentials {
        Credentials::Password { user, password } => issue(wire, user, password).await,
        Credentials::Token(token) => Ok(token.clone()),
        Credentials::Certificate(pair) => issue_by_certificate(wire, pair).await,
        Credentials::Shared(shared) => Err(no_token(wire, shared)),
    }
}

/// A clone of a session proves nothing else.
fn no_token(wire: &Wire, shared: &SharedSession) -> Error {
    wire.error(
        "Issue",
        Cause::NoTicket(shared.refusal("it issues tickets for sessions, not tokens")),
    )
}

/// The value of REST's `Authorization` that opens a session.
pub(crate) async fn authorization(
    wire: &Wire,
    credentials: &Credentials,
    path: &str,
) -> Result<SecretString, Error> {
    match credentials {
        Credentials::Password { user, password } => Ok(basic(user, password)),
        Credentials::Token(token) => Ok(token.authorization(wire, path)),
        Credentials::Certificate(pair) => {
            Ok(issue_by_certificate(wire, pair).await?.authorization(wire, path))
        }
        Credentials::Shared(shared) => Err(no_token(wire, shared)),
    }
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

/// Requests a bearer token.
async fn issue(wire: &Wire, user: &str, password: &SecretString) -> Result<Token, Error> {
    request(wire, bearer_request(user, password), None).await
}

/// Requests a token that is bound to the key of a certificate.
pub(crate) async fn issue_by_certificate(wire: &Wire, pair: &KeyPair) -> Result<Token, Error> {
    request(wire, holder_request(pair), Some(pair.clone())).await
}

async fn request(wire: &Wire, body: SecretString, pair: Option<KeyPair>) -> Result<Token, Error> {
    let body = body.expose_secret().to_owned();
    wire.post("Issue", PATH, ISSUE, body, |text| answered(text, pair.as_ref())).await
}

/// Finds the token in an answer.
fn answered(text: &str, pair: Option<&KeyPair>) -> Result<Token, Cause> {
    if let Answer::Fault(fault) = soap::answer(text, |_, _| Ok(())).map_err(Cause::Malformed)? {
        return Err(Cause::Fault(fault));
    }
    let mut reader = Reader::new(text);
    let found = reader.root().and_then(|root| assertion(&mut reader, &root, pair));
    found.transpose().unwrap_or_else(|| Err(reader.malformed("no token"))).map_err(Cause::Malformed)
}

/// The first assertion below an element.
fn assertion(
    reader: &mut Reader<'_>,
    element: &Element<'_>,
    pair: Option<&KeyPair>,
) -> Result<Option<Token>, Malformed> {
    while let Some(child) = reader.child(element)? {
        if child.name() == "Assertion" {
            return Token::read(reader, &child, pair.cloned()).map(Some);
        }
        if let Some(found) = assertion(reader, &child, pair)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The request for a bearer token.
fn bearer_request(user: &str, password: &SecretString) -> SecretString {
    let mut writer = Writer::new(Release::OLDEST);
    writer.verbatim(&timestamp().1);
    writer.open("wsse:UsernameToken");
    writer.leaf("wsse:Username", user);
    writer.leaf("wsse:Password", password.expose_secret());
    writer.close("wsse:UsernameToken");
    let header = security(&writer.finish());
    let header = Header { security: Some(header.expose_secret()), ..Header::default() };
    SecretString::from(soap::envelope(header, &content(BEARER, "Bearer", "")))
}

/// The request for a token of a certificate.
fn holder_request(pair: &KeyPair) -> SecretString {
    let (id, timestamp) = timestamp();
    let use_key = "<wst:UseKey Sig=\"signature\"></wst:UseKey>";
    let content = content(HOLDER, "PublicKey", use_key);
    let reference = format!(
        "<wsse:SecurityTokenReference><wsse:Reference URI=\"#certificate\" ValueType=\"{X509}\">\
         </wsse:Reference></wsse:SecurityTokenReference>"
    );
    let body = soap::secured_body(&content);
    let signature = pair.element("signature", &[(id, &timestamp), ("body", &body)], &reference);
    let certificate = pair.certificate();
    let header = security(&format!(
        "{timestamp}<wsse:BinarySecurityToken xmlns:wsu=\"{WSU}\" EncodingType=\"{BASE64}\" \
         ValueType=\"{X509}\" wsu:Id=\"certificate\">{certificate}</wsse:BinarySecurityToken>{signature}"
    ));
    let header = Header { security: Some(header.expose_secret()), ..Header::default() };
    SecretString::from(soap::envelope(header, &content))
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

/// When the request is made and how long it may be taken, with the element's id; written canonically.
fn timestamp() -> (&'static str, String) {
    let times = times(ON_THE_WAY);
    let id = "timestamp";
    (id, format!("<wsu:Timestamp xmlns:wsu=\"{WSU}\" wsu:Id=\"{id}\">{times}</wsu:Timestamp>"))
}

fn times(lifetime: Duration) -> String {
    let now = Timestamp::now();
    let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
    let show = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    format!("<wsu:Created>{}</wsu:Created><wsu:Expires>{}</wsu:Expires>", show(now), show(end))
}
