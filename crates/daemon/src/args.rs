//! Flags that programs share, as Kubernetes' own components spell and read them.
//!
//! A program flattens the groups it wants into its own clap type and reads it with [`read`], which adds what
//! Go's flags have and clap does not: `_` for `-` in names, and an answer to flags that were removed.
//! Values are in Go's syntax: durations such as `1m30s`, switches such as `--leader-elect=false`.
//!
//! Flags that change nothing here are still accepted, so that existing manifests work; [`Line::unused`] lists
//! them.

use std::{ffi::OsString, net::IpAddr, time::Duration};

use clap::{
    Arg, ArgMatches, Args, Command, Parser,
    builder::NonEmptyStringValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};
use hyper::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};

pub use self::{
    go::{InvalidDuration, OptionalPath, duration, optional_path, switch},
    listen::{Listen, OptionalListen, optional_listen},
};
use crate::{
    client::{self, InvalidKubernetes, Schedule},
    lease::{InvalidTiming, Timing},
    supervise::Chain,
    telemetry::Format,
};

mod go;
mod listen;

/// Which of several replicas works; the others stand by.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Work only while holding the lease; without it several processes would work at once.
    #[arg(long, default_value = "true", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = switch, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// How long standby processes wait after the last renewal they saw before they take over.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long the leader retries a renewal before it exits.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// How long to wait between two tries.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// The kind of object that is locked: only `leases`.
    #[arg(long, default_value = "leases", value_parser = ["leases"])]
    pub leader_elect_resource_lock: String,
    /// The name of the lease.
    #[arg(long, default_value = "cloud-controller-manager", value_parser = NonEmptyStringValueParser::new())]
    pub leader_elect_resource_name: String,
    /// The namespace of the lease.
    #[arg(long, default_value = "kube-system", value_parser = NonEmptyStringValueParser::new())]
    pub leader_elect_resource_namespace: String,
}

impl LeaderElection {
    /// The three durations, if they fit together.
    pub fn timing(&self) -> Result<Timing, InvalidTiming> {
        Timing::new(
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        )
    }
}

/// Where and with which certificate health and metrics are served.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct Serving {
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port of HTTPS; 0 serves nothing.
    #[arg(long, default_value_t = 10258)]
    pub secure_port: u16,
    /// The certificate, with intermediates, as PEM; without it a self-signed one is made at each start. Changes are
    /// picked up without a restart.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_path)]
    pub tls_cert_file: OptionalPath,
    /// The key of the certificate, as PEM.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_path)]
    pub tls_private_key_file: OptionalPath,
    /// The oldest version of TLS that is accepted: VersionTLS12 or VersionTLS13.
    #[arg(long, default_value = "VersionTLS12", value_parser = ["VersionTLS12", "VersionTLS13"])]
    pub tls_min_version: String,
}

/// How callers of the metrics are authenticated.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authentication")]
pub struct Authentication {
    /// The kubeconfig for token reviews; by default the one that is used for everything.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_path)]
    pub authentication_kubeconfig: OptionalPath,
    /// How long the result of a token review is cached.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
}

/// How callers of the metrics are authorized.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authorization")]
pub struct Authorization {
    /// The kubeconfig of the authorization API (SubjectAccessReview); by default the one that is used for everything.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_path)]
    pub authorization_kubeconfig: OptionalPath,
    /// Paths that need no token; `/path/*` means all below it.
    #[arg(long, default_value = "/healthz,/readyz,/livez", value_delimiter = ',')]
    pub authorization_always_allow_paths: Vec<String>,
    /// How long a permission is cached.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a refusal is cached.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

/// The Kubernetes API that the program works for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct Kubernetes {
    /// A kubeconfig; without it and without --master the pod's own service account is used.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = optional_path)]
    pub kubeconfig: OptionalPath,
    /// The address of the API, instead of the kubeconfig's.
    #[arg(long)]
    pub master: Option<String>,
    /// Requests a second to the API, on average; 0 means the default, less means no limit. Renewing the lease
    /// never waits.
    #[arg(long, default_value_t = DEFAULT_QPS, allow_negative_numbers = true, value_parser = qps)]
    pub kube_api_qps: f32,
    /// Requests to the API at once, after a pause; 0 means the default.
    #[arg(long, default_value_t = DEFAULT_BURST)]
    pub kube_api_burst: u32,
}

const DEFAULT_QPS: f32 = 500.0;
const DEFAULT_BURST: u32 = 1000;

fn qps(text: &str) -> Result<f32, String> {
    let number: Option<f32> = text.parse().ok().filter(|number: &f32| number.is_finite());
    number.ok_or_else(|| format!("{text:?} is not a valid number"))
}

impl Kubernetes {
    /// A client that the API knows as `program`; it sends nothing yet.
    pub async fn client(&self, program: &'static str) -> Result<Client, InvalidKubernetes> {
        let master = self.master.as_deref().filter(|master| !master.is_empty());
        let master = master.map(client::address).transpose()?;
        let mut config = match (&self.kubeconfig, &master) {
            (Some(path), _) => client::read_kubeconfig(path).await?,
            (None, Some(master)) => Config::new(master.clone()),
            (None, None) => Config::incluster()
                .map_err(|error| InvalidKubernetes::NoPod(Chain(&error).to_string()))?,
        };
        config.cluster_url = master.unwrap_or(config.cluster_url);
        config.headers.push((USER_AGENT, HeaderValue::from_static(program)));
        let qps = if self.kube_api_qps == 0.0 { DEFAULT_QPS } else { self.kube_api_qps };
        let burst = if self.kube_api_burst == 0 { DEFAULT_BURST } else { self.kube_api_burst };
        client::connect(config, (qps > 0.0).then(|| Schedule::new(qps, burst)))
    }
}

/// What is logged, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Logs")]
pub struct Logs {
    /// How much is logged: up to 3 what changed, 4 and 5 why, from 6 on everything, from 8 on libraries too.
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    pub verbosity: u8,
    /// How a line looks: text or json.
    #[arg(long, visible_alias = "logging-format", default_value = "text")]
    pub log_format: Format,
}

/// A flag that was removed: its name without dashes, and what to do instead.
pub type Removed = (&'static str, &'static str);

/// A flag that is accepted, so that existing manifests work, and changes nothing.
#[derive(Clone, Copy, Debug)]
pub enum Ignored {
    /// `--name` or `--name=false`.
    Switch(&'static str),
    /// `--name=value` or `--name value`.
    Value(&'static str),
}

/// Flags of the groups here that change nothing: only HTTP/1.1 is served and there is no profiler; callers
/// authenticate by a token and without a proxy; requests are sent as JSON; one log level counts for all, and
/// lines are written at once.
const IGNORED: &[Ignored] = &[
    Ignored::Value("tls-cipher-suites"),
    Ignored::Value("tls-curve-preferences"),
    Ignored::Value("tls-sni-cert-key"),
    Ignored::Value("cert-dir"),
    Ignored::Switch("disable-http2-serving"),
    Ignored::Value("http2-max-streams-per-connection"),
    Ignored::Switch("permit-address-sharing"),
    Ignored::Switch("permit-port-sharing"),
    Ignored::Switch("profiling"),
    Ignored::Switch("contention-profiling"),
    Ignored::Switch("authentication-skip-lookup"),
    Ignored::Switch("authentication-tolerate-lookup-failure"),
    Ignored::Value("client-ca-file"),
    Ignored::Value("requestheader-allowed-names"),
    Ignored::Value("requestheader-client-ca-file"),
    Ignored::Value("requestheader-extra-headers-prefix"),
    Ignored::Value("requestheader-group-headers"),
    Ignored::Value("requestheader-uid-headers"),
    Ignored::Value("requestheader-username-headers"),
    Ignored::Value("kube-api-content-type"),
    Ignored::Value("vmodule"),
    Ignored::Value("log-flush-frequency"),
];

impl Ignored {
    /// The flag's name, without dashes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Switch(name) | Self::Value(name) => name,
        }
    }

    fn argument(self) -> Arg {
        let argument = Arg::new(self.name()).long(self.name()).hide(true);
        match self {
            Self::Switch(_) => {
                argument.num_args(0..=1).require_equals(true).default_missing_value("true")
            }
            Self::Value(_) => argument.num_args(1).allow_hyphen_values(true),
        }
    }
}

/// Why the command line was refused, or the text that `--help` and `--version` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For stdout or stderr.
    pub text: String,
    /// Whether the user requested it: write it to stdout and succeed.
    pub wanted: bool,
}

/// The width of the help text.
const WIDEST: usize = 100;

/// A command line that was read.
#[derive(Clone, Debug)]
pub struct Line<P> {
    /// The program's flags.
    pub flags: P,
    /// Flags that were given and change nothing, for a warning in the log.
    pub unused: Vec<String>,
}

/// Reads a command line (with the program's name first). Beside the flags of `P` it accepts those that change
/// nothing: the ones of the groups here, and `ignored`.
pub fn read<P: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    removed: &[Removed],
    ignored: &[Ignored],
) -> Result<Line<P>, Answer> {
    let ignored = IGNORED.iter().chain(ignored).map(|flag| flag.argument());
    // As in Go, the last of several equal flags counts.
    let mut command = P::command().args(ignored).args_override_self(true).max_term_width(WIDEST);
    command = command.mut_args(|argument| match value_name(&argument) {
        Some(name) => argument.value_name(name),
        None => argument,
    });
    let line = command.try_get_matches_from_mut(normalized(arguments)).and_then(|matches| {
        let unused = unused(&command, &matches);
        Ok(Line { flags: P::from_arg_matches(&matches)?, unused })
    });
    line.map_err(|error| {
        let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        let text = gone(&error, removed).unwrap_or_else(|| error.render().to_string());
        Answer { text, wanted }
    })
}

/// The name of a flag's value in the help; clap would repeat the name of the flag.
fn value_name(argument: &Arg) -> Option<&'static str> {
    let name = argument.get_long()?;
    if argument
        .get_value_names()
        .is_some_and(|names| names[0] != name.replace('-', "_").to_uppercase())
    {
        return None;
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    match name {
        _ if !argument.get_action().takes_values() => None,
        _ if argument.is_require_equals_set() => Some("true|false"),
        _ if ends(&["-ttl", "-duration", "-deadline", "-period"]) => Some("DURATION"),
        _ if ends(&["config", "-file"]) => Some("PATH"),
        _ if ends(&["-port"]) => Some("PORT"),
        _ if ends(&["-paths"]) => Some("LIST"),
        _ if ends(&["-address"]) => Some("ADDRESS"),
        _ => Some("VALUE"),
    }
}

/// Flags without effect are those that the help does not show.
fn unused(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let given = |argument: &&Arg| {
        argument.is_hide_set()
            && matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    command
        .get_arguments()
        .filter(given)
        .filter_map(|one| Some(format!("--{}", one.get_long()?)))
        .collect()
}

/// The answer to an unknown flag that was removed.
fn gone(error: &clap::Error, removed: &[Removed]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.trim_start_matches('-').split('=').next()?;
    let (name, instead) = removed.iter().find(|(known, _)| *known == name)?;
    Some(format!("error: the flag --{name} was removed: {instead}\n"))
}

/// The same command line with `-` for `_` in the names of flags.
fn normalized(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    let rewrite = |argument: OsString| {
        only_values |= argument == "--";
        let Some(flag) = argument.to_str().filter(|text| text.starts_with("--") && !only_values)
        else {
            return argument;
        };
        match flag.split_once('=') {
            Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
            None => flag.replace('_', "-").into(),
        }
    };
    arguments.into_iter().map(rewrite).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        leader: LeaderElection,
        #[command(flatten)]
        serving: Serving,
        #[command(flatten)]
        authentication: Authentication,
        #[command(flatten)]
        authorization: Authorization,
        #[command(flatten)]
        kubernetes: Kubernetes,
        #[command(flatten)]
        logs: Logs,
    }

    const REMOVED: &[Removed] = &[("port", "use --secure-port")];

    fn parsed(line: &str) -> Result<Program, String> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        read(words.map(OsString::from), REMOVED, &[])
            .map(|line| line.flags)
            .map_err(|answer| answer.text)
    }

    #[test]
    fn the_definition_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_upstream() {
        let program = parsed("").unwrap();
        assert!(program.leader.leader_elect);
        assert_eq!(program.leader.timing().unwrap(), Timing::default());
        assert_eq!(program.serving.secure_port, 10258);
        assert_eq!(
            program.authorization.authorization_always_allow_paths,
            ["/healthz", "/readyz", "/livez"]
        );
        assert_eq!(
            program.authentication.authentication_token_webhook_cache_ttl,
            Duration::from_secs(10)
        );
        assert_eq!(program.logs.verbosity, 0);
        assert!(program.kubernetes.kubeconfig.is_none());
    }

    #[test]
    fn names_may_have_underscores_and_values_keep_theirs() {
        let program =
            parsed("--leader_elect=false --leader_elect_resource_name=a_b --secure_port 0")
                .unwrap();
        assert!(!program.leader.leader_elect);
        assert_eq!(program.leader.leader_elect_resource_name, "a_b");
        assert_eq!(program.serving.secure_port, 0);
    }

    #[test]
    fn an_empty_path_is_none_and_the_last_of_equal_flags_counts() {
        let program = parsed("--kubeconfig= --tls-cert-file= --v=2 --v=5").unwrap();
        assert_eq!(program.kubernetes.kubeconfig, None);
        assert_eq!(program.serving.tls_cert_file, None);
        assert_eq!(program.logs.verbosity, 5);
        let program = parsed("--kubeconfig /etc/k --tls_cert_file=/tls.crt").unwrap();
        assert_eq!(program.kubernetes.kubeconfig, Some("/etc/k".into()));
        assert_eq!(program.serving.tls_cert_file, Some("/tls.crt".into()));
    }

    #[test]
    fn the_verbosity_is_read_in_all_ways_people_write_it() {
        for line in ["-v 4", "-v=4", "-v4", "--v=4", "--v 4"] {
            assert_eq!(parsed(line).unwrap().logs.verbosity, 4, "{line}");
        }
    }

    #[test]
    fn a_switch_alone_is_true_and_does_not_eat_the_next_word() {
        assert!(parsed("--leader-elect --v=2").unwrap().leader.leader_elect);
        assert!(!parsed("--leader-elect=F").unwrap().leader.leader_elect);
        assert!(parsed("--leader-elect=maybe").unwrap_err().contains("maybe"));
    }

    #[test]
    fn an_unknown_flag_is_answered_with_the_nearest_one() {
        let text = parsed("--leader-elect-lease-durations=15s").unwrap_err();
        assert!(text.contains("--leader-elect-lease-duration"), "{text}");
    }

    #[test]
    fn a_removed_flag_is_answered_with_what_to_do() {
        let text = parsed("--port=0").unwrap_err();
        assert_eq!(text, "error: the flag --port was removed: use --secure-port\n");
    }

    #[test]
    fn durations_that_do_not_fit_together_are_refused() {
        let program = parsed("--leader-elect-renew-deadline=20s").unwrap();
        let error = program.leader.timing().unwrap_err();
        assert!(error.to_string().contains("renew deadline"), "{error}");
    }

    #[test]
    fn a_rate_may_be_any_number_and_nothing_else() {
        let rate = |line| parsed(line).map(|program| program.kubernetes.kube_api_qps);
        for (line, expected) in
            [("", 500.0), ("--kube-api-qps=0.5", 0.5), ("--kube-api-qps=-1", -1.0)]
        {
            assert_eq!(rate(line).unwrap().to_bits(), f32::to_bits(expected), "{line}");
        }
        for line in ["--kube-api-qps=many", "--kube-api-qps=NaN"] {
            assert!(rate(line).unwrap_err().contains("is not a valid number"), "{line}");
        }
    }

    #[test]
    fn another_lock_than_a_lease_is_refused() {
        assert!(parsed("--leader-elect-resource-lock=endpoints").unwrap_err().contains("leases"));
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let program = parsed("--kubeconfig=/nowhere/config").unwrap();
        let error = program.kubernetes.client("program").await.err().unwrap();
        assert!(error.to_string().contains("/nowhere/config"), "{error}");
        let program = parsed("--master=10.0.0.1").unwrap();
        let error = program.kubernetes.client("program").await.err().unwrap();
        assert!(error.to_string().contains("--master=10.0.0.1 is not a valid address"), "{error}");
    }

    #[test]
    fn flags_that_change_nothing_are_taken_and_named() {
        let words = ["program", "--vmodule=a=1", "--profiling", "--v=2", "--client_ca_file=/ca"];
        let line = read::<Program>(words.map(OsString::from), REMOVED, &[]).unwrap();
        assert_eq!(line.unused, ["--profiling", "--client-ca-file", "--vmodule"]);
    }

    #[test]
    fn help_is_no_error() {
        let answer =
            read::<Program>(["program", "--help"].map(OsString::from), REMOVED, &[]).unwrap_err();
        assert!(answer.wanted);
        assert!(answer.text.contains("Leader election"), "{}", answer.text);
        assert!(!answer.text.contains("vmodule"), "what changes nothing is hidden");
    }
}
