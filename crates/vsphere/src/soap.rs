//! SOAP as vCenter speaks it: envelopes of requests and answers.

use crate::{
    error::Cause,
    fault::Fault,
    reference::{IsA, Kind, Ref},
    version::{Line, Release},
    xml::{Element, Malformed, Method, Reader, ToXml, Writer},
};

/// The services of a vCenter. All but SSO share one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// The inventory.
    Vim,
    /// Volumes.
    Cns,
    /// Tasks of volumes, which are the inventory's; but only the namespace of CNS has the types of their results.
    CnsTasks,
    /// Storage policies.
    Pbm,
    /// First class disks.
    Vslm,
    /// Administration of SSO users.
    Sso,
}

impl Service {
    /// Its name in the Go CSI driver's metrics, which has no others than the first three.
    pub(crate) fn client(self) -> &'static str {
        match self {
            Self::Vim | Self::CnsTasks => "soap",
            Self::Cns => "cns",
            Self::Pbm => "pbm",
            Self::Vslm => "vslm",
            Self::Sso => "sso",
        }
    }

    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Vim => ("urn:vim25", "/sdk"),
            Self::Cns => ("urn:vsan", "/vsanHealth"),
            Self::CnsTasks => ("urn:vsan", "/sdk"),
            Self::Pbm => ("urn:pbm", "/pbm"),
            Self::Vslm => ("urn:vslm", "/vslm/sdk"),
            Self::Sso => ("urn:sso", "/sso-adminserver/sdk"),
        }
    }

    fn namespace(self) -> &'static str {
        self.place().0
    }

    pub(crate) fn path(self) -> &'static str {
        self.place().1
    }

    /// The header without what the service does not take. PBM and VSLM find the session in the envelope, the others
    /// at the cookie; the administration of SSO refuses elements without a namespace.
    fn accepted(self, header: Header<'_>) -> Header<'_> {
        Header {
            session: header.session.filter(|_| matches!(self, Self::Pbm | Self::Vslm)),
            operation: if self == Self::Sso { "" } else { header.operation },
            ..header
        }
    }

    /// Whether its versions are those of vSAN.
    pub(crate) fn is_vsan(self) -> bool {
        matches!(self, Self::Cns | Self::CnsTasks)
    }

    /// Whether its calls may be slow because they work on storage.
    pub(crate) fn is_storage(self) -> bool {
        matches!(self, Self::Cns | Self::Pbm | Self::Vslm)
    }

    /// The SOAPAction: the version decides which fields and values the server sends.
    pub(crate) fn action<'a>(self, version: impl Fn(Line) -> &'a str) -> String {
        let version = match self {
            Self::Vim => version(Line::Vim),
            Self::Cns | Self::CnsTasks => version(Line::Vsan),
            Self::Pbm | Self::Vslm => "",
            Self::Sso => "version2",
        };
        // Versions of vSAN may have a blank: "vSAN 7.0U3".
        format!("{}/{version}", self.namespace())
    }
}

/// What goes into the header of an envelope.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Header<'a> {
    /// Appears in vCenter's logs and in ours.
    pub(crate) operation: &'a str,
    /// The session for services that do not look at the cookie.
    pub(crate) session: Option<&'a str>,
    /// A security header, ready made.
    pub(crate) security: Option<&'a str>,
}

const OPEN: &str = concat!(
    r#"<?xml version="1.0" encoding="UTF-8"?>"#,
    r#"<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/""#,
    r#" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance""#,
    r#" xmlns:xsd="http://www.w3.org/2001/XMLSchema">"#
);
const CLOSE: &str = "</soapenv:Body></soapenv:Envelope>";

/// The start tag of a body that a security header speaks of, with all namespaces that it uses, as a signature
/// over it wants them.
const SECURED_BODY: &str = concat!(
    r#"<soapenv:Body xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/""#,
    r#" xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd""#,
    r#" wsu:Id="body">"#
);

/// The request that calls a method.
pub(crate) fn request<M: Method, K: Kind>(
    header: Header<'_>,
    release: Release,
    service: Service,
    on: &Ref<K>,
    method: &M,
) -> String {
    envelope(service.accepted(header), &call(release, service, on, method))
}

/// The body of the request that calls a method below a security header, to be signed.
pub(crate) fn secured<M: Method, K: Kind>(
    release: Release,
    service: Service,
    on: &Ref<K>,
    method: &M,
) -> String {
    secured_body(&call(release, service, on, method))
}

/// The body with this content below a security header.
pub(crate) fn secured_body(content: &str) -> String {
    format!("{SECURED_BODY}{content}</soapenv:Body>")
}

fn call<M: Method, K: Kind>(release: Release, service: Service, on: &Ref<K>, method: &M) -> String {
    let mut writer = Writer::new(release);
    writer.open_with(M::NAME, &[("xmlns", service.namespace())]);
    on.to_xml(&mut writer, "_this");
    method.arguments(&mut writer);
    writer.close(M::NAME);
    writer.finish()
}

/// What calling a method sends to a server of this release: path, action, and the envelope with `COOKIE` in
/// place of the session. For people and tests; nothing is sent.
pub fn preview<M: Method, K: IsA<M::On>>(release: Release, on: &Ref<K>, method: &M) -> String {
    let header = Header { session: Some("COOKIE"), ..Header::default() };
    let (path, action) = (M::SERVICE.path(), M::SERVICE.action(|line| release.version(line)));
    let envelope = request(header, release, M::SERVICE, on, method);
    format!("POST {path}\nSOAPAction: {action}\n\n{envelope}")
}

/// The request with a body that is XML already.
pub(crate) fn envelope(header: Header<'_>, body: &str) -> String {
    let mut writer = Writer::new(Release::OLDEST);
    writer.verbatim(OPEN);
    if header != Header::default() {
        writer.open("soapenv:Header");
        if let Some(session) = header.session {
            // The cookie's value may be quoted; the header's is not.
            writer.leaf("vcSessionCookie", session.trim_matches('"'));
        }
        if !header.operation.is_empty() {
            writer.leaf("operationID", header.operation);
        }
        writer.verbatim(header.security.unwrap_or_default());
        writer.close("soapenv:Header");
    }
    writer.verbatim(header.security.map_or("<soapenv:Body>", |_| SECURED_BODY));
    writer.verbatim(body);
    writer.verbatim(CLOSE);
    writer.finish()
}

/// Reads an answer: passes each `returnval` to `take`, or fails with the server's fault.
pub(crate) fn answer<'a>(
    document: &'a str,
    mut take: impl FnMut(&mut Reader<'a>, &Element<'a>) -> Result<(), Malformed>,
) -> Result<(), Cause> {
    let mut reader = Reader::new(document);
    let envelope = reader.root()?;
    if envelope.name() != "Envelope" {
        let problem = format!("a {} instead of an envelope", envelope.name());
        return Err(reader.malformed(problem).into());
    }
    let body = reader.find(&envelope, "Body")?;
    let body = body.ok_or_else(|| reader.malformed("an envelope without body"))?;
    let response = reader.child(&body)?;
    let response = response.ok_or_else(|| reader.malformed("an empty body"))?;
    let mut refusal = None;
    if response.name() == "Fault" {
        refusal = Some(Box::new(fault(&mut reader, &response)?));
    } else {
        while let Some(value) = reader.child(&response)? {
            if value.name() == "returnval" {
                take(&mut reader, &value)?;
            }
        }
    }
    // The rest must be there too: a cut answer may end anywhere.
    while reader.child(&envelope)?.is_some() {}
    refusal.map_or(Ok(()), |fault| Err(Cause::Fault(fault)))
}

fn fault(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Fault, Malformed> {
    let (mut code, mut message, mut fault) = (String::new(), String::new(), None);
    while let Some(child) = reader.child(element)? {
        match child.name() {
            "faultcode" => code = reader.text(&child)?.into_owned(),
            "faultstring" => message = reader.text(&child)?.into_owned(),
            "detail" => {
                if let Some(detail) = reader.child(&child)? {
                    fault = Some(Fault::detailed(reader, &detail, std::mem::take(&mut message))?);
                }
            }
            _ => {}
        }
    }
    let code = code.rsplit_once(':').map_or(code.as_str(), |(_, local)| local);
    Ok(fault.unwrap_or_else(|| Fault::bare(code, &message)))
}

#[cfg(test)]
mod tests;
