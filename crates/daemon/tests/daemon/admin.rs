//! The admin server as kubelets and Prometheus see it.

use std::{fs, net::SocketAddr, path::Path};

use daemon::{
    admin::{Access, Admin, Checks, Contents, Plain, PlainContents, Weight},
    args::optional_listen,
    supervise::{Stop, shutdown},
    telemetry::{self, Format, Verbosity},
};
use http_body_util::BodyExt;
use hyper::http::{Method, Request, Response};
use kube::{Client, Config, client::Body};
use lab::{ControlPlane, Wait, until};
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use rcgen::{CertifiedKey, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{BOUND, Flags, flags, token};

struct Served {
    address: SocketAddr,
    checks: Checks,
    verbosity: Verbosity,
    /// The log whose verbosity it is.
    _log: Box<dyn tracing::Subscriber + Send + Sync>,
    stop: Stop,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn serve(reviewer: &Client, flags: &Flags) -> Served {
    let (log, verbosity) = telemetry::subscriber(Format::Text, 0, std::io::sink);
    let mut metrics = Registry::default();
    let visits = Family::<[(String, u32); 1], Counter>::default();
    // More than the buffers of a connection hold.
    for visitor in 0..20_000 {
        visits.get_or_create(&[("visitor".to_owned(), visitor)]).inc();
    }
    metrics.register("visits", "How often somebody came", visits);
    let checks = Checks::default();
    let access = Access::new(reviewer, &flags.authentication, &flags.authorization).await.unwrap();
    let contents =
        Contents { checks: checks.clone(), metrics, verbosity: verbosity.clone(), access };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let admin = Admin::on(listener, &flags.serving, contents).unwrap();
    let (stop, shutdown) = shutdown();
    let task = tokio::runtime::Handle::current().spawn(admin.run(shutdown));
    Served { address, checks, verbosity, _log: Box::new(log), stop, task }
}

/// A client that trusts this authority alone, or anybody.
fn visitor(address: SocketAddr, authority: Option<&[u8]>) -> Client {
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = authority.is_none();
    config.root_cert = authority.map(|der| vec![der.to_vec()]);
    Client::try_from(config).unwrap()
}

async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> Result<(u16, String), String> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
    let answer: Response<Body> =
        client.send(request).await.map_err(|error| format!("{error:?}"))?;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((status, String::from_utf8(bytes.to_vec()).unwrap()))
}

async fn get(client: &Client, path: &str, token: Option<&str>) -> (u16, String) {
    ask(client, Method::GET, path, token, "").await.unwrap()
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) {
    lab::run(plane.kubectl().unwrap().args(arguments)).unwrap();
}

/// A client with the token of a new service account.
fn as_account(plane: &ControlPlane, token: &str) -> Client {
    let mut config = Config::new(plane.server().unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(token.to_owned().into());
    Client::try_from(config).unwrap()
}

/// A server whose own service account may review, and nothing else.
async fn serve_as_account(plane: &ControlPlane) -> Served {
    let quick = flags(&[
        "--authorization-webhook-cache-unauthorized-ttl=0s",
        "--authentication-token-webhook-cache-ttl=1h",
    ]);
    let ours = token(&plane.client(), "ccm").await;
    serve(&as_account(plane, &ours), &quick).await
}

fn allow_reviews(plane: &ControlPlane) {
    kubectl(
        plane,
        &[
            "create",
            "clusterrolebinding",
            "ccm",
            "--clusterrole=system:auth-delegator",
            "--serviceaccount=default:ccm",
        ],
    );
}

#[tokio::test]
async fn a_server_that_may_not_review_says_which_role_it_lacks() {
    let plane = ControlPlane::start().await.unwrap();
    let served = serve_as_account(&plane).await;
    let client = visitor(served.address, None);
    let prometheus = token(&plane.client(), "prometheus").await;
    let (status, text) = get(&client, "/metrics", Some(&prometheus)).await;
    assert_eq!(status, 500, "{text}");
    assert!(text.contains("system:auth-delegator"), "{text}");
    allow_reviews(&plane);
    until("the binding is known to the API", BOUND, || async {
        let (status, text) = get(&client, "/metrics", Some(&prometheus)).await;
        Ok(if status == 500 { Wait::NotYet(text) } else { Wait::Done(()) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn metrics_and_details_of_checks_need_a_token_and_a_role() {
    let plane = ControlPlane::start().await.unwrap();
    allow_reviews(&plane);
    let served = serve_as_account(&plane).await;
    let client = visitor(served.address, None);
    let prometheus = token(&plane.client(), "prometheus").await;

    let (status, text) = get(&client, "/metrics", None).await;
    assert_eq!(status, 401, "{text}");
    assert!(text.contains("needs a token"), "{text}");
    let text = until("the role of the server is known to the API", BOUND, || async {
        let (status, text) = get(&client, "/metrics", Some(&prometheus)).await;
        Ok(if status == 403 { Wait::Done(text) } else { Wait::NotYet(text) })
    })
    .await
    .unwrap();
    assert!(
        text.contains("system:serviceaccount:default:prometheus may not get /metrics"),
        "{text}"
    );
    assert!(text.contains(r#"{nonResourceURLs: ["/metrics"], verbs: ["get"]}"#), "{text}");

    kubectl(
        &plane,
        &["create", "clusterrole", "scrape", "--verb=get", "--non-resource-url=/metrics"],
    );
    kubectl(
        &plane,
        &[
            "create",
            "clusterrolebinding",
            "scrape",
            "--clusterrole=scrape",
            "--serviceaccount=default:prometheus",
        ],
    );
    let text = until("the role is known to the API", BOUND, || async {
        let (status, text) = get(&client, "/metrics", Some(&prometheus)).await;
        Ok(if status == 200 { Wait::Done(text) } else { Wait::NotYet(text) })
    })
    .await
    .unwrap();
    assert!(text.contains("# TYPE visits counter") && text.ends_with("# EOF\n"));
    assert_eq!(text.lines().filter(|line| line.starts_with("visits_total{")).count(), 20_000);
    let (status, _) = get(&client, "/debug/flags/v", Some(&prometheus)).await;
    assert_eq!(status, 403, "one path is not all paths");
    details_are_shown(&plane, &served, &prometheus).await;
    let (status, text) = get(&client, "/metrics", Some("wrong")).await;
    assert_eq!(status, 401, "{text}");
}

/// Shows the details of checks to whoever may read metrics, and to nobody else.
async fn details_are_shown(plane: &ControlPlane, served: &Served, prometheus: &str) {
    let client = visitor(served.address, None);
    let vcenter = served.checks.register("vcenter/east", Weight::Detail);
    vcenter.fail("administrator@vsphere.local was refused");
    let other = token(&plane.client(), "other").await;
    for (who, token, expected) in [
        ("nobody", None, "[!]vcenter/east failed: reason withheld"),
        ("an unknown token", Some("wrong"), "[!]vcenter/east failed: reason withheld"),
        ("an account without a role", Some(&*other), "[!]vcenter/east failed: reason withheld"),
        (
            "an account that may read metrics",
            Some(prometheus),
            "[!]vcenter/east failed: administrator@vsphere.local was refused",
        ),
    ] {
        let (status, text) = get(&client, "/readyz?verbose", token).await;
        assert_eq!((status, text.lines().nth(1)), (200, Some(expected)), "{who}: {text}");
    }
}

#[tokio::test]
async fn health_is_open_without_details() {
    let plane = ControlPlane::start().await.unwrap();
    let served = serve(&plane.client(), &flags(&[])).await;
    let client = visitor(served.address, None);
    assert_eq!(get(&client, "/healthz", None).await, (200, "ok".to_owned()));
    let inventory = served.checks.register("inventory", Weight::Readiness);
    assert_eq!(get(&client, "/livez", None).await.0, 200);
    let (status, text) = get(&client, "/readyz", None).await;
    assert_eq!(status, 500);
    assert_eq!(text, "[+]ping ok\n[-]inventory failed: reason withheld\nreadyz check failed\n");
    inventory.pass("500 VMs");
    let (status, text) = get(&client, "/readyz?verbose", None).await;
    assert_eq!((status, text.lines().nth(1)), (200, Some("[+]inventory ok")), "{text}");
    assert_eq!(
        get(&client, "/readyz/inventory", None).await.0,
        401,
        "only the path itself is open"
    );
    assert_eq!(ask(&client, Method::POST, "/healthz", None, "").await.unwrap().0, 405);

    drop(served.stop);
    tokio::time::timeout(BOUND, served.task).await.unwrap().unwrap().unwrap();
    ask(&client, Method::GET, "/healthz", None, "").await.unwrap_err();
}

#[tokio::test]
async fn the_verbosity_is_read_and_changed_by_those_who_may() {
    let plane = ControlPlane::start().await.unwrap();
    let open = flags(&["--authorization-always-allow-paths=/debug/*"]);
    let served = serve(&plane.client(), &open).await;
    let client = visitor(served.address, None);
    let put = |body: &'static str| ask(&client, Method::PUT, "/debug/flags/v", None, body);
    let (status, text) = put("4").await.unwrap();
    assert_eq!((status, text.trim()), (200, "successfully set klog.logging.verbosity to 4"));
    assert_eq!(served.verbosity.get(), 4);
    assert_eq!(get(&client, "/debug/flags/v", None).await, (200, "4\n".to_owned()));
    assert_eq!(put("loud").await.unwrap().0, 400);
    assert_eq!(put(&"9".repeat(1000).leak()[..]).await.unwrap().0, 400);
    assert_eq!(served.verbosity.get(), 4);
    assert_eq!(get(&client, "/debug/nothing", None).await.0, 404);
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_disturbs_nobody() {
    let plane = ControlPlane::start().await.unwrap();
    let served = serve(&plane.client(), &flags(&[])).await;
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    let silent = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(BOUND, plain.read_to_end(&mut answer)).await.unwrap().ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(get(&visitor(served.address, None), "/healthz", None).await.0, 200);
    // Who says nothing at all does not keep the program from ending.
    drop(served.stop);
    tokio::time::timeout(BOUND, served.task).await.unwrap().unwrap().unwrap();
    drop(silent);
}

fn write_pair(dir: &Path) -> Vec<u8> {
    let CertifiedKey::<KeyPair> { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    // One after the other, as an administrator would: in between they do not belong together.
    fs::write(dir.join("tls.crt"), cert.pem()).unwrap();
    fs::write(dir.join("tls.key"), signing_key.serialize_pem()).unwrap();
    cert.der().to_vec()
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_served_without_a_restart() {
    let plane = ControlPlane::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let first = write_pair(dir.path());
    let certificate = format!("--tls-cert-file={}", dir.path().join("tls.crt").display());
    let key = format!("--tls-private-key-file={}", dir.path().join("tls.key").display());
    let served = serve(&plane.client(), &flags(&[&certificate, &key])).await;
    assert_eq!(get(&visitor(served.address, Some(&first)), "/healthz", None).await.0, 200);

    let second = write_pair(dir.path());
    until("the new certificate is served", BOUND, || async {
        let fresh = visitor(served.address, Some(&second));
        Ok(match ask(&fresh, Method::GET, "/healthz", None, "").await {
            Ok((200, _)) => Wait::Done(()),
            other => Wait::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    let stale = visitor(served.address, Some(&first));
    ask(&stale, Method::GET, "/healthz", None, "").await.unwrap_err();
}

#[tokio::test]
async fn a_port_of_zero_serves_nothing_and_a_taken_one_says_which_flags() {
    let plane = ControlPlane::start().await.unwrap();
    let contents = || async {
        let (_, verbosity) = telemetry::subscriber(Format::Text, 0, std::io::sink);
        let (client, flags) = (plane.client(), flags(&[]));
        let access = Access::new(&client, &flags.authentication, &flags.authorization);
        let access = access.await.unwrap();
        Contents { checks: Checks::default(), metrics: Registry::default(), verbosity, access }
    };
    let none = Admin::bind(&flags(&["--secure-port=0"]).serving, contents().await).await.unwrap();
    assert!(none.is_none());
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let refused =
        Admin::bind(&flags(&["--bind-address=127.0.0.1", &port]).serving, contents().await).await;
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("--secure-port"), "{text}");
}

#[tokio::test]
async fn a_plain_server_serves_what_it_was_given_and_withholds_details() {
    let checks = Checks::default();
    let check = checks.register("grpc", Weight::Life);
    check.fail("the socket of 10.0.0.1 is gone");
    let all = PlainContents { checks: Some(checks), metrics: Some(Registry::default()) };
    let address = optional_listen("127.0.0.1:0").unwrap().unwrap();
    for (contents, health, metrics) in [(PlainContents::default(), 404, 404), (all, 500, 200)] {
        let server = Plain::bind("health-address", &address, contents).await.unwrap();
        let at = server.address().unwrap();
        let mut config = Config::new(format!("http://{at}").parse().unwrap());
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).unwrap();
        let (stop, asked) = shutdown();
        let task = tokio::runtime::Handle::current().spawn(server.run(asked));
        let (status, text) = ask(&client, Method::GET, "/healthz", None, "").await.unwrap();
        assert_eq!(status, health);
        assert!(!text.contains("10.0.0.1"), "{text}");
        let (status, text) = ask(&client, Method::GET, "/metrics", None, "").await.unwrap();
        assert_eq!((status, text.contains("process_")), (metrics, metrics == 200), "{text}");
        let put = ask(&client, Method::PUT, "/metrics", None, "").await.unwrap().0;
        assert_eq!(put, if metrics == 200 { 405 } else { 404 });
        let flags = ask(&client, Method::GET, "/debug/flags/v", None, "").await.unwrap().0;
        assert_eq!(flags, 404);
        drop(stop);
        task.await.unwrap().unwrap();
    }
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let taken = optional_listen(&taken.to_string()).unwrap().unwrap();
    let held = Plain::bind("health-address", &taken, PlainContents::default()).await.unwrap();
    let refused = Plain::bind("health-address", &taken, PlainContents::default()).await;
    let text = refused.err().unwrap().to_string();
    assert!(text.contains(&taken.to_string()) && text.contains("--health-address="), "{text}");
    drop(held);
}
