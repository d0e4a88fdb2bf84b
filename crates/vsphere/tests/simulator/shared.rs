//! Sessions cloned with tickets of a service, and services that give none.

use std::sync::{Arc, Mutex};

use lab::VCenter;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use vsphere::{
    connection::Connection,
    error::{Error, Remedy},
    session::Credentials,
    shared::{Bearer, SharedSession},
    tags::TagCache,
};

use crate::site::{sessions, settings, vcenter};

const USER: (&str, &str) = ("administrator@vsphere.local", "Lab-admin-1!");
const BEARER: &str = "may-have-sessions";

/// A service on loopback that answers whatever it is told to.
struct Service {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Service {
    async fn start(answer: impl Fn() -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ticket", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut task = JoinSet::new();
        let log = Arc::clone(&asked);
        task.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let request = serve(stream, &answer()).await;
                log.lock().unwrap().push(request);
            }
        });
        Self { url, asked, _task: task }
    }

    fn connect(&self, vcenter: &VCenter) -> Connection {
        let mut settings = settings(vcenter, USER);
        let bearer = Bearer::Token(BEARER.into());
        settings.credentials = Credentials::Shared(SharedSession { url: self.url.clone(), bearer });
        Connection::new(&settings).unwrap()
    }
}

async fn serve(mut stream: TcpStream, answer: &str) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        request.push(byte[0]);
    }
    // A client that has given up does not read.
    stream.write_all(answer.as_bytes()).await.unwrap_or_default();
    String::from_utf8(request).unwrap()
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

#[tokio::test]
async fn a_clone_works_for_calls_and_for_tags_and_ends_alone() {
    let vcenter = vcenter().await;
    let tickets = Arc::new(vcenter);
    let source = Arc::clone(&tickets);
    let service = Service::start(move || {
        let ticket = source.cnsctl(&["ticket"]).unwrap();
        answer("200 OK", &format!("{{\"token\": \"{ticket}\"}}"))
    })
    .await;
    let connection = service.connect(&tickets);
    assert_eq!(connection.login().await.unwrap(), "VSPHERE.LOCAL\\administrator");
    let mut tags = TagCache::new(&connection, ["k8s-zone".to_owned()]);
    tags.refresh().await.unwrap();
    tickets.control().expire_sessions().await.unwrap();
    tags.refresh().await.unwrap();
    connection.time().await.unwrap();
    connection.close().await;
    assert_eq!(sessions(&tickets, "administrator").await, 0);
    let asked = service.asked.lock().unwrap();
    assert_eq!(asked.len(), 2, "a ticket per login: {asked:?}");
    let header = format!("authorization: Bearer {BEARER}");
    assert!(asked.iter().all(|request| request.contains(&header)), "{asked:?}");
}

#[tokio::test]
async fn a_service_that_gives_no_ticket_is_named_with_what_it_did() {
    let vcenter = vcenter().await;
    for (given, told) in [
        (answer("403 Forbidden", ""), "vc-session-manager-token"),
        (answer("500 Internal Server Error", "{}"), "it answered 500"),
        (answer("200 OK", "<html>"), "it did not answer"),
        (answer("200 OK", "{\"token\": \"\"}"), "its ticket is empty"),
        (answer("200 OK", "{\"token\": \"used-before\"}"), "vCenter does not know it"),
    ] {
        let service = Service::start(move || given.clone()).await;
        let connection = service.connect(&vcenter);
        for _ in 0..2 {
            let error = connection.login().await.unwrap_err();
            assert!(
                matches!(error, Error { remedy: Remedy::Unreachable, .. }),
                "nothing is held back: {error}"
            );
            let text = error.to_string();
            assert!(text.contains(&service.url) && text.contains(told), "{told}: {text}");
            assert!(!text.contains(BEARER) && !text.contains("used-before"), "{text}");
        }
        connection.close().await;
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_or_a_token_that_is_not_is_named() {
    let vcenter = vcenter().await;
    let mut settings = settings(&vcenter, USER);
    for (url, bearer, told) in [
        ("http://127.0.0.1:1/", Bearer::Token("x".into()), "refused"),
        ("not a url", Bearer::Token("x".into()), "not a valid URL"),
        (
            "http://127.0.0.1:1/",
            Bearer::File("/nowhere/token".into()),
            "cannot read /nowhere/token",
        ),
    ] {
        settings.credentials = Credentials::Shared(SharedSession { url: url.to_owned(), bearer });
        let error = Connection::new(&settings).unwrap().login().await.unwrap_err();
        assert!(error.to_string().contains(told), "{told}: {error}");
    }
}
