//! The server's side of TLS: its certificate, and a stream over rustls.

use std::{
    io::{self, Read as _, Write as _},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use rustls::{
    ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;

use crate::reload::Contents;

/// Where a certificate and its key are.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Whether TLS 1.2 is spoken beside 1.3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oldest(pub(super) bool);

/// A certificate for this machine that nobody vouches for, as upstream's programs make.
pub(super) fn self_signed(names: Vec<String>, oldest: Oldest) -> Result<ServerConfig, String> {
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    config(vec![made.cert.der().clone()], key, oldest)
}

/// The configuration by the files of a pair.
pub(super) fn from_files(
    pair: &Pair,
    oldest: Oldest,
    files: &Contents,
) -> Result<ServerConfig, String> {
    let of = |path: &PathBuf| files.get(path).map(Vec::as_slice).unwrap_or_default();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(of(&pair.certificate))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", pair.certificate.display()))?;
    if chain.is_empty() {
        return Err(format!("{}: there is no certificate in it", pair.certificate.display()));
    }
    let key = PrivateKeyDer::from_pem_slice(of(&pair.key))
        .map_err(|error| format!("{}: {error}", pair.key.display()))?;
    config(chain, key, oldest)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    Oldest(with_tls12): Oldest,
) -> Result<ServerConfig, String> {
    let versions: &[_] = if with_tls12 { &[&TLS13, &TLS12] } else { &[&TLS13] };
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

/// A connection of a client; the handshake happens while it is read and written.
pub(super) struct TlsStream {
    socket: TcpStream,
    session: ServerConnection,
}

/// The socket as rustls wants it: reads and writes that say `WouldBlock`.
struct Socket<'a>(&'a TcpStream);

impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { socket, session: ServerConnection::new(config)? })
    }

    /// Writes what the session has to say; ready when all of it is in the socket.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads some of what the client says into the session; ready with false at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            match self.session.read_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Poll::Ready(Ok(false)),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let processed = self.session.process_new_packets();
        // Also an alert that says what the client did wrong; it may have to wait for the socket.
        let sent = self.poll_send(cx);
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if let Poll::Ready(sent) = sent {
            sent?;
        }
        Poll::Ready(Ok(true))
    }

    fn poll_plain(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that just hangs up is no error: there is nothing to be cut off in HTTP.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                read => return Poll::Ready(read),
            }
            if !ready!(self.poll_receive(cx))? {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl Read for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper's buffer may be uninitialised; a small one of our own keeps this free of unsafe code.
        let mut plain = [0; 4096];
        let room = buffer.remaining().min(plain.len());
        let count = ready!(self.poll_plain(cx, &mut plain[..room]))?;
        buffer.put_slice(&plain[..count]);
        Poll::Ready(Ok(()))
    }
}

impl Write for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let count = self.session.writer().write(bytes)?;
            let sent = self.poll_send(cx)?;
            if count > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(count));
            }
            // The session's own buffer is full: wait until the socket took some of it.
            ready!(sent);
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        self.poll_send(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_must_belong_together_and_what_is_wrong_is_named() {
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, two) = (make(), make());
        let pair = Pair { certificate: "tls.crt".into(), key: "tls.key".into() };
        let check = |certificate: &str, key: &str, expected: Result<(), &str>| {
            let files = Contents::from([
                ("tls.crt".into(), certificate.as_bytes().to_vec()),
                ("tls.key".into(), key.as_bytes().to_vec()),
            ]);
            match (from_files(&pair, Oldest(true), &files), expected) {
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
