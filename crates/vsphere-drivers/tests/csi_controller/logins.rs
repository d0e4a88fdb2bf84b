//! What processes that share a user fail together, counted where their logins arrive.
//!
//! Single sign-on locks an account at the fifth failed login within three minutes. Each process tries refused
//! credentials once in five minutes, and knows nothing of the others.

use std::{
    fs::File,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use lab::{Wait, until};

use crate::world::{BOUND, Controller, Start, World};

const USER: &str = "csi@vsphere.local";
const GOOD: &str = "Lab-csi-1!";
const WRONG: &str = "Lab-csi-1";
/// The failed login that locks an account.
const LOCKS: usize = 5;

/// The cloud controller manager; dropping it kills it.
struct CloudController(Child);

impl CloudController {
    fn start(world: &World) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
        command.arg0("/bin/vsphere-cloud-controller-manager").args([
            format!("--cloud-config={}", world.path("vsphere.conf").display()),
            format!("--kubeconfig={}", world.plane.kubeconfig().display()),
            "--secure-port=0".to_owned(),
        ]);
        let log = File::create(world.path("manager.log")).unwrap();
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for CloudController {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Gives both programs the same user with this password.
fn configure(world: &World, password: &str) {
    let csi = world.configuration("").replace(GOOD, password);
    let (port, server) = (world.port(), world.server());
    let manager = format!(
        "global:\n  port: {port}\n  caFile: {}\n  user: {USER}\n  password: {password}\nvcenter:\n  east:\n    \
         server: {server}\n",
        world.vcenter.authority().display()
    );
    world.write("csi-vsphere.conf", &csi);
    world.write("vsphere.conf", &manager);
}

async fn failed(world: &World) -> usize {
    let all = world.vcenter.control().failed_logins().await.unwrap();
    all.iter().filter(|login| login.user == USER).count()
}

async fn until_failed(world: &World, number: usize) {
    until("all have tried their password", BOUND, || async {
        let now = failed(world).await;
        Ok(if now >= number { Wait::Done(()) } else { Wait::NotYet(format!("{now} failed")) })
    })
    .await
    .unwrap();
}

async fn replica(world: &World, socket: &str) -> Controller {
    world.serve(Start { flags: &["--attach"], ..Start::controller(socket) }).await
}

#[tokio::test]
async fn a_wrong_password_of_two_controllers_and_a_manager_locks_nothing_even_if_one_restarts() {
    let world = World::start().await;
    configure(&world, WRONG);
    let first = replica(&world, "first.sock").await;
    let second = replica(&world, "second.sock").await;
    let manager = CloudController::start(&world);
    until_failed(&world, 3).await;
    // What else makes programs log in again.
    for _ in 0..3 {
        world.vcenter.control().restart(0).await.unwrap();
        for controller in [&first, &second] {
            controller.capacity().await.unwrap_err();
        }
    }
    assert_eq!(failed(&world).await, 3, "{}", first.log());
    drop(first);
    let first = replica(&world, "first.sock").await;
    until_failed(&world, 4).await;
    configure(&world, GOOD);
    for controller in [&first, &second] {
        controller.until_ready().await;
    }
    let failed = failed(&world).await;
    assert!(failed < LOCKS, "{failed} failed logins");
    drop(manager);
}
