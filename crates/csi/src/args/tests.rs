//! What the command line and the environment mean, and what is said about the rest.

use clap::CommandFactory;
use daemon::telemetry::Format;

use super::*;

const NODE: &str = "CSI_ENDPOINT=unix:///csi/csi.sock X_CSI_MODE=node";
const CONTROLLER: &str = "CSI_ENDPOINT=unix:///csi/csi.sock X_CSI_MODE=controller";

/// Reads variables and flags, in one text of words.
fn read_words(words: &str) -> Result<Settings, String> {
    let (flags, variables): (Vec<_>, Vec<_>) =
        words.split_whitespace().partition(|word| word.starts_with('-'));
    let variable = |word: &str| {
        let (name, value) = word.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    };
    let environment: Environment = variables.into_iter().map(variable).collect();
    let line = [PROGRAM].into_iter().chain(flags).map(OsString::from);
    read(line, &environment).map_err(|answer| answer.text)
}

#[track_caller]
fn assert_refused(words: &str, parts: &[&str]) {
    let text = read_words(words).unwrap_err();
    assert!(parts.iter().all(|part| text.contains(part)), "{words}: {text}");
}

#[test]
fn the_definition_is_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn upstreams_node_is_understood() {
    let words = "CSI_ENDPOINT=unix:///csi/csi.sock NODE_NAME=node-1 X_CSI_MODE=node X_CSI_SPEC_REQ_VALIDATION=false \
                 X_CSI_SPEC_DISABLE_LEN_CHECK=true LOGGER_LEVEL=PRODUCTION CSI_NAMESPACE=vmware-system-csi \
                 NODEGETINFO_WATCH_TIMEOUT_MINUTES=1 --fss-name=internal-feature-states.csi.vsphere.vmware.com \
                 --fss-namespace=vmware-system-csi";
    let settings = read_words(words).unwrap();
    assert_eq!(settings.endpoint, Path::new("/csi/csi.sock"));
    assert_eq!(settings.unused, ["--fss-name", "--fss-namespace"]);
    assert_eq!((settings.logs.log_format, settings.logs.verbosity), (Format::Json, 0));
    assert_eq!((settings.health, settings.metrics), (None, None));
    let Mode::Node(node) = settings.mode else { panic!() };
    assert_eq!((node.name.as_deref(), node.registration), (Some("node-1"), None));
}

#[test]
fn upstreams_controller_is_understood() {
    let words = "CSI_ENDPOINT=unix:///csi/csi.sock X_CSI_MODE=controller X_CSI_SPEC_DISABLE_LEN_CHECK=true \
                 X_CSI_SERIAL_VOL_ACCESS_TIMEOUT=3m VSPHERE_CSI_CONFIG=/etc/cloud/csi-vsphere.conf \
                 LOGGER_LEVEL=DEVELOPMENT INCLUSTER_CLIENT_QPS=100 INCLUSTER_CLIENT_BURST=100 \
                 --fss-name=internal-feature-states.csi.vsphere.vmware.com --fss-namespace=x \
                 --enable-profile-server=false";
    let settings = read_words(words).unwrap();
    assert_eq!(settings.namespace, "vmware-system-csi");
    assert_eq!((settings.logs.log_format, settings.logs.verbosity), (Format::Text, 4));
    assert_eq!(settings.kubernetes.kube_api_burst, 100);
    assert_eq!(settings.metrics.unwrap().to_string(), ":2112");
    let Mode::Controller(controller) = settings.mode else { panic!() };
    assert_eq!(controller.config, ConfigFile::Own("/etc/cloud/csi-vsphere.conf".into()));
    assert!(!controller.attach);
}

#[test]
fn our_manifests_ask_for_what_sidecars_did() {
    let path = "/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock";
    let words = format!("{NODE} --kubelet-registration-path={path} --health-address=:9808");
    let settings = read_words(&words).unwrap();
    assert_eq!(settings.health.unwrap().to_string(), ":9808");
    let Mode::Node(Node { registration: Some(registration), .. }) = settings.mode else { panic!() };
    let expected = Registration { endpoint: path.into(), directory: "/registration".into() };
    assert_eq!(registration, expected);
    let settings = read_words(&format!("{CONTROLLER} --attach --metrics-address=")).unwrap();
    assert_eq!(settings.metrics, None);
    assert!(matches!(settings.mode, Mode::Controller(Controller { attach: true, .. })));
}

#[test]
fn a_flag_wins_over_the_variable_that_stands_for_it() {
    let variables =
        "VSPHERE_CSI_CONFIG=/a/csi-vsphere.conf LOGGER_LEVEL=PRODUCTION INCLUSTER_CLIENT_QPS=7.5";
    let settings = read_words(&format!("{CONTROLLER} {variables}")).unwrap();
    assert_eq!(settings.kubernetes.kube_api_qps.to_bits(), 7.5_f32.to_bits());
    let flags = "--cloud-config=/b/vsphere.conf --log-format=text --kube-api-qps=9";
    let settings = read_words(&format!("{CONTROLLER} {variables} {flags}")).unwrap();
    assert_eq!(settings.logs.log_format, Format::Text);
    assert_eq!(settings.kubernetes.kube_api_qps.to_bits(), 9_f32.to_bits());
    let Mode::Controller(controller) = settings.mode else { panic!() };
    assert_eq!(controller.config, ConfigFile::Shared("/b/vsphere.conf".into()));
}

#[test]
fn sockets_and_modes_are_read_in_every_spelling() {
    for endpoint in ["unix:///csi/csi.sock", "unix:/csi/csi.sock"] {
        let settings = read_words(&format!("CSI_ENDPOINT={endpoint} X_CSI_MODE=Node")).unwrap();
        assert_eq!(settings.endpoint, Path::new("/csi/csi.sock"), "{endpoint}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_value_and_with_what_is_allowed() {
    assert_refused("", &["CSI_ENDPOINT", "unix:///csi/csi.sock"]);
    assert_refused("CSI_ENDPOINT=unix:///csi/csi.sock", &["X_CSI_MODE", "controller or node"]);
    assert_refused("CSI_ENDPOINT= X_CSI_MODE=node", &["CSI_ENDPOINT is missing"]);
    for endpoint in ["tcp://0.0.0.0:1", "/csi/csi.sock", "unix://csi.sock", "unix:", "unix:///"] {
        assert_refused(
            &format!("CSI_ENDPOINT={endpoint} X_CSI_MODE=node"),
            &["CSI_ENDPOINT", endpoint, "unix:///"],
        );
    }
    let both = "CSI_ENDPOINT=unix:///s X_CSI_MODE=both";
    assert_refused(both, &["X_CSI_MODE=both", "controller or node"]);
    for value in ["4", "1001", "many", "NaN"] {
        let words = format!("{CONTROLLER} INCLUSTER_CLIENT_BURST={value}");
        assert_refused(&words, &["INCLUSTER_CLIENT_BURST", value, "5 to 1000"]);
    }
    assert_refused(
        &format!("{NODE} --health-address=9808"),
        &["--health-address", "9808", ":9808"],
    );
    assert_refused(
        &format!("{NODE} --kubelet-registration-path=csi.sock"),
        &["--kubelet-registration-path=csi.sock", "absolute"],
    );
}

#[test]
fn a_level_of_logs_that_the_go_driver_does_not_know_is_its_default_and_named() {
    let settings = read_words(&format!("{NODE} LOGGER_LEVEL=DEBUG")).unwrap();
    assert_eq!((settings.logs.log_format, settings.logs.verbosity), (Format::Json, 0));
    assert_eq!(settings.unused, ["LOGGER_LEVEL=DEBUG (it is PRODUCTION or DEVELOPMENT)"]);
}

#[test]
fn a_probe_needs_nothing_but_the_socket() {
    let settings = read_words("CSI_ENDPOINT=unix:///csi/csi.sock --probe").unwrap();
    assert_eq!((settings.health, settings.metrics), (None, None));
    assert!(matches!(settings.mode, Mode::Probe));
    assert_refused("--probe", &["CSI_ENDPOINT is missing"]);
}

#[test]
fn a_flag_of_the_other_mode_is_refused() {
    assert_refused(&format!("{NODE} --attach"), &["--attach", "X_CSI_MODE=controller"]);
    assert_refused(&format!("{NODE} --overcommit"), &["--overcommit", "X_CSI_MODE=controller"]);
    let words = format!("{CONTROLLER} --kubelet-registration-path=/csi.sock");
    assert_refused(&words, &["--kubelet-registration-path", "X_CSI_MODE=node"]);
}

#[test]
fn the_help_needs_no_environment_and_explains_it() {
    let environment = [("INCLUSTER_CLIENT_QPS".to_owned(), "wrong".to_owned())].into();
    let answer = read([PROGRAM, "--help"].map(OsString::from), &environment).unwrap_err();
    assert!(answer.wanted);
    for name in ["X_CSI_MODE", "--kubelet-registration-path", "--attach"] {
        assert!(answer.text.contains(name), "{name}: {}", answer.text);
    }
    assert!(!answer.text.contains("fss"), "what changes nothing is hidden");
    let version = read([PROGRAM, "--version"].map(OsString::from), &environment).unwrap_err();
    assert!(version.wanted && version.text.starts_with("vsphere-csi "), "{}", version.text);
}
