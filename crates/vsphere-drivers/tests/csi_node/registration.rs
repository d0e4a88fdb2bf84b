//! The kubelet's part is played by a client of ours; the deployed tests have a real one.

use rustix::process::Signal;

use crate::driver::Place;

/// As the kubelet sends it: whether the driver is registered, and why not.
#[derive(Clone, PartialEq, prost::Message)]
struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    plugin_registered: bool,
    #[prost(string, tag = "2")]
    error: String,
}

const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
const REGISTRATION: &str = "registration/csi.vsphere.vmware.com-reg.sock";

fn flags(place: &Place) -> [String; 2] {
    [
        "--kubelet-registration-path=/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock"
            .into(),
        format!("--registration-directory={}", place.text("registration")),
    ]
}

#[tokio::test]
async fn the_driver_registers_itself_and_leaves_when_it_ends() {
    let place = Place::new();
    let flags = flags(&place);
    let flags = flags.each_ref().map(String::as_str);
    let mut first = place.start(&flags);
    let mut kubelet = place.connect(REGISTRATION).await;
    let registered = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.call::<_, ()>(NOTIFY, registered).await.unwrap();
    first.until_printed("driver registered with the kubelet");
    // A process that is killed leaves both sockets; the next one replaces them.
    first.signal(Signal::KILL);
    first.until_ended();
    let mut second = place.start(&flags);
    second.until_printed("stale socket removed");
    second.until_printed("stale socket removed");
    place.connect(REGISTRATION).await;
    second.stop();
    assert!(!place.path(REGISTRATION).exists() && !place.socket().exists());
}

#[tokio::test]
async fn a_kubelet_that_refuses_the_driver_ends_the_process_with_its_reason() {
    let place = Place::new();
    let flags = flags(&place);
    let mut program = place.start(&flags.each_ref().map(String::as_str));
    let mut kubelet = place.connect(REGISTRATION).await;
    let error = "error updating CSINode object: timed out".to_owned();
    let refused = RegistrationStatus { plugin_registered: false, error: error.clone() };
    kubelet.call::<_, ()>(NOTIFY, refused).await.unwrap();
    let (status, text) = program.until_ended();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("the kubelet refused the driver: {error}")), "{text}");
}
