//! vCenter behind a proxy.

use std::sync::{Arc, Mutex};

use lab::{VCenter, vcenter::ADMINISTRATOR};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use vsphere::{
    connection::{Connection, Settings},
    error::Remedy,
    proxy::Proxy,
    tls::{Roots, Trust},
};

use crate::site::{settings, vcenter};

/// A proxy on loopback that tunnels, or refuses with a status.
struct Tunnels {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Tunnels {
    async fn start(refusal: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (log, mut task) = (Arc::clone(&requests), JoinSet::new());
        task.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                tunnels.spawn(tunnel(client, Arc::clone(&log), refusal));
            }
        });
        Self { address, requests, _task: task }
    }

    /// Settings that lead to the vCenter by a name that only the proxy knows.
    fn settings(&self, vcenter: &VCenter) -> Settings {
        let port = vcenter.url().strip_prefix("https://").unwrap().rsplit(':').next().unwrap();
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        let thumbprint = Some(vcenter.thumbprint_sha256().parse().unwrap());
        let proxy = format!("http://user:p%40ss@{}", self.address);
        Settings {
            endpoint: format!("vcenter.test:{port}").parse().unwrap(),
            trust: Trust::Verify { roots: Roots::System, thumbprint },
            proxy: Proxy::from_variables(|name| (name == "HTTPS_PROXY").then(|| proxy.clone())),
            ..settings(vcenter, ADMINISTRATOR)
        }
    }
}

async fn tunnel(
    mut client: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
    refusal: Option<&'static str>,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(client.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let target = request.split(' ').nth(1).unwrap().replace("vcenter.test", "127.0.0.1");
    requests.lock().unwrap().push(request);
    if let Some(status) = refusal {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        client.write_all(answer.as_bytes()).await.unwrap_or_default();
        return;
    }
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    // Both ends may close at any time.
    copy_bidirectional(&mut client, &mut server).await.unwrap_or_default();
}

#[tokio::test]
async fn everything_goes_through_the_proxy() {
    let vcenter = vcenter().await;
    let proxy = Tunnels::start(None).await;
    let connection = Connection::new(&proxy.settings(&vcenter)).unwrap();
    connection.time().await.unwrap();
    connection.tags().categories().await.unwrap();
    connection.sso().await.unwrap().logout().await;
    connection.close().await;
    let requests = proxy.requests.lock().unwrap();
    assert!(!requests.is_empty());
    for request in &*requests {
        assert!(request.starts_with("CONNECT vcenter.test:"), "{request}");
        let header = request.to_lowercase();
        assert!(header.contains("proxy-authorization: basic dxnlcjpwqhnz"), "{request}");
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let vcenter = vcenter().await;
    let proxy = Tunnels::start(Some("403 Forbidden")).await;
    let error = Connection::new(&proxy.settings(&vcenter)).unwrap().time().await.unwrap_err();
    assert_eq!(error.remedy, Remedy::Unreachable);
    let text = error.to_string();
    assert!(text.contains(&format!("through the proxy {}", proxy.address)), "{text}");
    assert!(!text.contains("p%40ss") && !text.contains("p@ss"), "{text}");
}
