//! etcd and kube-apiserver, and on request the controllers and the scheduler.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use components::Progress;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use serde_json::{Value, json};

use crate::{
    audit,
    network::{API_SERVICE, CONTROL_PLANE, PODS, SERVICES},
    pki::{self, Authority, Credentials, Identity},
    process::{Daemon, Place, explain, run},
    wait::{Wait, until},
    world::World,
};

const READY_WITHIN: Duration = Duration::from_secs(120);
const APISERVER: &str = "kube-apiserver";

/// Which of Kubernetes' own controllers run beside the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// None: objects stay as they were written. Enough for a test of one controller of ours.
    None,
    /// kube-controller-manager and kube-scheduler.
    All,
}

/// A Kubernetes API with RBAC and real tokens. Dropping it ends it and removes its files.
pub struct ControlPlane {
    kubeconfig: PathBuf,
    client: Client,
    // Ended from first to last: clients before servers, the world when nothing uses it any more.
    daemons: Vec<Daemon>,
    /// How the API was started, to start it again.
    api: Vec<OsString>,
    world: Arc<World>,
}

/// Where a control plane runs and how it is reached.
pub(crate) struct Site {
    pub(crate) place: Place,
    /// Where the API listens.
    pub(crate) listen: SocketAddr,
    /// How the machine reaches it.
    pub(crate) from_machine: SocketAddr,
}

impl ControlPlane {
    /// Starts an API of its own for one test; needs no root.
    ///
    /// # Errors
    /// When a component is not built or does not become ready; the message ends with its log.
    pub async fn start() -> Result<Self> {
        Self::start_with(Controllers::None).await
    }

    /// As [`ControlPlane::start`], with a choice of Kubernetes' controllers.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn start_with(controllers: Controllers) -> Result<Self> {
        let world = Arc::new(World::claim()?);
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, world.port(0)));
        let site = Site { place: Place::Machine, listen: here, from_machine: here };
        let files = Files::create(&world, &site)?;
        let mut plane = Self::start_at(world, &site, &files, &Progress::silent()).await?;
        if controllers == Controllers::All {
            plane.start_controllers(&site, &files)?;
        }
        Ok(plane)
    }

    pub(crate) async fn start_at(
        world: Arc<World>,
        site: &Site,
        files: &Files,
        progress: &Progress,
    ) -> Result<Self> {
        let step = progress.step("kube-apiserver");
        // Pushed in front of what they depend on, because daemons end from first to last.
        let mut daemons = vec![start_etcd(&world, site.place)?];
        let command = apiserver(&world, site, files)?;
        let api = std::iter::once(command.get_program()).chain(command.get_args());
        let api = api.map(ToOwned::to_owned).collect();
        daemons.insert(0, Daemon::spawn(&world, APISERVER, command)?);
        let client = files.client().await?;
        ready(&mut daemons, &client).await?;
        step.done("ready");
        Ok(Self { kubeconfig: files.admin.clone(), client, daemons, api, world })
    }

    pub(crate) fn start_controllers(&mut self, site: &Site, files: &Files) -> Result<()> {
        let manager = start_controller_manager(&self.world, site.place, files)?;
        self.daemons.insert(0, manager);
        self.daemons.insert(0, start_scheduler(&self.world, site.place, files)?);
        Ok(())
    }

    /// Kills the API and starts it again; what it stored is kept. Returns when it is ready.
    ///
    /// # Errors
    /// When it does not become ready; the message ends with its log.
    pub async fn restart_api(&mut self) -> Result<()> {
        let is_api = |daemon: &Daemon| daemon.name() == APISERVER;
        let at = self.daemons.iter().position(is_api).context("the API does not run")?;
        drop(self.daemons.remove(at));
        let (program, arguments) = self.api.split_first().context("the API was never started")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        self.daemons.insert(at, Daemon::spawn(&self.world, APISERVER, command)?);
        ready(&mut self.daemons, &self.client).await
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address of the API on this machine, such as `https://127.0.0.1:21000`.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub fn server(&self) -> Result<String> {
        let config = Kubeconfig::read_from(&self.kubeconfig)?;
        let server = config.clusters.into_iter().find_map(|named| named.cluster?.server);
        server.context("the lab's kubeconfig names no server")
    }

    /// `kubectl` with this cluster's administrator.
    ///
    /// # Errors
    /// When kubectl is not built.
    pub fn kubectl(&self) -> Result<Command> {
        let mut command = Command::new(components::binary("kubectl")?);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        Ok(command)
    }

    /// Writes a kubeconfig with nothing but a token of this service account, valid for an hour.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() },
            ..TokenRequest::default()
        };
        let answer =
            accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.context("the API made no token")?.token;
        let mut config: Value = serde_json::from_slice(&fs::read(&self.kubeconfig)?)?;
        config["users"][0]["user"] = json!({"token": token});
        let path = self.world.dir().join(format!("{namespace}-{account}.kubeconfig"));
        pki::write_private(&path, &config.to_string())?;
        Ok(path)
    }

    /// Applies objects with `kubectl apply`, and returns its output.
    ///
    /// # Errors
    /// When the API server rejects one.
    pub fn apply(&self, objects: &[Value]) -> Result<String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let path = self.world.dir().join("applied.json");
        pki::write_private(&path, &list.to_string())?;
        run(self.kubectl()?.args(["apply", "--filename"]).arg(&path))
    }

    /// The requests of service accounts so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit(&self) -> Result<Vec<audit::Request>> {
        audit::read(&self.world)
    }

    /// The world it lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Fails when one of its processes has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(Daemon::check)
    }
}

/// Waits until the API answers, as long as all these run.
async fn ready(daemons: &mut [Daemon], client: &Client) -> Result<()> {
    let ready = until("the API is ready", READY_WITHIN, || {
        let alive = daemons.iter_mut().try_for_each(Daemon::check);
        let client = client.clone();
        async move {
            alive?;
            Ok(match readiness(&client).await {
                Ok(()) => Wait::Done(()),
                Err(error) => Wait::NotYet(error),
            })
        }
    })
    .await;
    explain(ready, daemons)
}

async fn readiness(client: &Client) -> Result<(), String> {
    let request =
        hyper::http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

/// Certificates and kubeconfigs of one cluster, as files below the world.
pub(crate) struct Files {
    pub(crate) authority: Authority,
    front_proxy: Authority,
    apiserver: Credentials,
    kubelet_client: Credentials,
    proxy_client: Credentials,
    signing_key: PathBuf,
    verifying_key: PathBuf,
    admin: PathBuf,
    controller_manager: PathBuf,
    scheduler: PathBuf,
}

impl Files {
    pub(crate) fn create(world: &World, site: &Site) -> Result<Self> {
        let dir = world.dir().join("pki");
        let authority = Authority::create(&dir, "ca")?;
        let front_proxy = Authority::create(&dir, "front-proxy-ca")?;
        let addresses =
            [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(CONTROL_PLANE), IpAddr::V4(API_SERVICE)];
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let apiserver = authority.issue(
            "apiserver",
            &Identity {
                common_name: "kube-apiserver",
                names: &names,
                addresses: &addresses,
                ..Identity::default()
            },
        )?;
        let client = |name: &str, common_name: &str, organization: Option<&str>| {
            authority.issue(name, &Identity { common_name, organization, ..Identity::default() })
        };
        let kubelet_client =
            client("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"))?;
        let proxy_client = front_proxy.issue(
            "proxy-client",
            &Identity { common_name: "front-proxy-client", ..Identity::default() },
        )?;
        let (signing_key, verifying_key) = pki::signing_keys(&dir)?;
        let kubeconfig = |name: &str, at: SocketAddr, client: &Credentials| {
            let path = world.dir().join(name);
            pki::write_kubeconfig(
                &path,
                &format!("https://{at}"),
                &authority.own().certificate,
                client,
            )?;
            anyhow::Ok(path)
        };
        let admin = client("admin", "lab-admin", Some("system:masters"))?;
        let manager = client("controller-manager", "system:kube-controller-manager", None)?;
        let scheduler = client("scheduler", "system:kube-scheduler", None)?;
        Ok(Self {
            admin: kubeconfig("kubeconfig", site.from_machine, &admin)?,
            controller_manager: kubeconfig("controller-manager.kubeconfig", site.listen, &manager)?,
            scheduler: kubeconfig("scheduler.kubeconfig", site.listen, &scheduler)?,
            authority,
            front_proxy,
            apiserver,
            kubelet_client,
            proxy_client,
            signing_key,
            verifying_key,
        })
    }

    async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.admin)?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.connect_timeout = Some(Duration::from_secs(10));
        Ok(Client::try_from(config)?)
    }
}

/// etcd listens on a Unix socket: no port, and only the owner of the world can reach it.
fn start_etcd(world: &World, place: Place) -> Result<Daemon> {
    // etcd requires HOST:PORT also in Unix URLs, and creates a file of that name in its working directory.
    let (clients, peers) = ("unix://etcd:0", "unix://etcd-peers:0");
    let mut command = place.command(components::binary("etcd")?);
    command.current_dir(world.dir()).args(["--data-dir=etcd-data", "--unsafe-no-fsync"]).args([
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
    ]);
    Daemon::spawn(world, "etcd", command)
}

fn apiserver(world: &World, site: &Site, files: &Files) -> Result<Command> {
    let mut command = site.place.command(components::binary("kube-apiserver")?);
    let mut set = |flag: &str, value: &dyn std::fmt::Display| {
        command.arg(format!("--{flag}={value}"));
    };
    let authority = files.authority.own();
    set("audit-policy-file", &audit::write_policy(world)?.display());
    set("audit-log-path", &audit::log(world).display());
    // Megabytes; Kubernetes' controllers are service accounts too, and a lab may run for days.
    set("audit-log-maxsize", &20);
    set("audit-log-maxbackup", &1);
    set("etcd-servers", &format!("unix://{}", world.dir().join("etcd:0").display()));
    set("bind-address", &site.listen.ip());
    set("secure-port", &site.listen.port());
    set("advertise-address", &CONTROL_PLANE);
    set("service-cluster-ip-range", &SERVICES);
    // The Service of an API on loopback cannot be reached, and the API server rejects a loopback address there.
    set("endpoint-reconciler-type", &if site.listen.ip().is_loopback() { "none" } else { "lease" });
    set("authorization-mode", &"Node,RBAC");
    set("enable-admission-plugins", &"NodeRestriction");
    set("allow-privileged", &true);
    set("client-ca-file", &authority.certificate.display());
    set("tls-cert-file", &files.apiserver.certificate.display());
    set("tls-private-key-file", &files.apiserver.key.display());
    set("kubelet-certificate-authority", &authority.certificate.display());
    set("kubelet-client-certificate", &files.kubelet_client.certificate.display());
    set("kubelet-client-key", &files.kubelet_client.key.display());
    set("kubelet-preferred-address-types", &"InternalIP");
    set("service-account-issuer", &"https://kubernetes.default.svc");
    set("service-account-key-file", &files.verifying_key.display());
    set("service-account-signing-key-file", &files.signing_key.display());
    set("requestheader-client-ca-file", &files.front_proxy.own().certificate.display());
    set("requestheader-allowed-names", &"front-proxy-client");
    set("requestheader-extra-headers-prefix", &"X-Remote-Extra-");
    set("requestheader-group-headers", &"X-Remote-Group");
    set("requestheader-username-headers", &"X-Remote-User");
    set("proxy-client-cert-file", &files.proxy_client.certificate.display());
    set("proxy-client-key-file", &files.proxy_client.key.display());
    Ok(command)
}

fn start_controller_manager(world: &World, place: Place, files: &Files) -> Result<Daemon> {
    let mut command = place.command(components::binary("kube-controller-manager")?);
    let authority = files.authority.own();
    command
        .args([
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--cloud-provider=external",
        ])
        .args(["--secure-port=0", "--allocate-node-cidrs=false"])
        .arg(format!("--kubeconfig={}", files.controller_manager.display()))
        .arg(format!("--cluster-cidr={PODS}"))
        .arg(format!("--root-ca-file={}", authority.certificate.display()))
        .arg(format!("--cluster-signing-cert-file={}", authority.certificate.display()))
        .arg(format!("--cluster-signing-key-file={}", authority.key.display()))
        .arg(format!("--service-account-private-key-file={}", files.signing_key.display()));
    Daemon::spawn(world, "kube-controller-manager", command)
}

fn start_scheduler(world: &World, place: Place, files: &Files) -> Result<Daemon> {
    let mut command = place.command(components::binary("kube-scheduler")?);
    command
        .args(["--leader-elect=false", "--secure-port=0"])
        .arg(format!("--kubeconfig={}", files.scheduler.display()));
    Daemon::spawn(world, "kube-scheduler", command)
}
