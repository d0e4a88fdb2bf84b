//! The kubelet's part is played by a client of ours; the deployed tests have a real one.

use lab::{Wait, until};
use rustix::process::Signal;

use crate::{driver::Place, process::BOUND};

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
async fn a_kubelet_that_refuses_the_driver_is_offered_it_again() {
    let place = Place::new();
    let flags = flags(&place);
    let mut program = place.start(&flags.each_ref().map(String::as_str));
    let mut kubelet = place.connect(REGISTRATION).await;
    let error = "error updating CSINode object: timed out".to_owned();
    let refused = RegistrationStatus { plugin_registered: false, error: error.clone() };
    kubelet.call::<_, ()>(NOTIFY, refused).await.unwrap();
    let line = program.until_printed("driver not registered; trying again");
    assert!(line.contains(&error), "{line}");
    drop(kubelet);
    let registered = RegistrationStatus { plugin_registered: true, error: String::new() };
    let again = until("the driver is offered again", BOUND, || async {
        let mut kubelet = place.connect(REGISTRATION).await;
        Ok(match kubelet.call::<_, ()>(NOTIFY, registered.clone()).await {
            Ok(()) => Wait::Done(()),
            Err(status) => Wait::NotYet(status.to_string()),
        })
    });
    again.await.unwrap();
    program.until_printed("driver registered with the kubelet");
    program.stop();
}
