//! Whether the API server is one that the driver is made for.

use std::{convert::Infallible, time::Duration};

use daemon::{
    admin::{Check, Checks, Weight},
    supervise::Shutdown,
};
use kube::Client;
use tokio::time::sleep;
use tracing::{info, warn};

/// The oldest release: from it on the scheduler can learn how many volumes fit on a node.
const OLDEST: (u32, u32) = (1, 33);
const RETRY: Duration = Duration::from_secs(30);

/// The check that names the release; it stops nothing, because volumes work with older ones as far as is known.
pub(super) fn check(checks: &Checks) -> Check {
    checks.register("kubernetes", Weight::Detail)
}

/// Reads the release once, and reports one that is too old.
pub(super) async fn report(
    client: Client,
    check: Check,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let version = async {
        loop {
            match client.apiserver_version().await {
                Ok(version) => return version,
                Err(error) => check.fail(format!("its version could not be read: {error}")),
            }
            sleep(RETRY).await;
        }
    };
    let Some(version) = shutdown.unless(version).await else { return Ok(()) };
    match too_old(&version.major, &version.minor) {
        None => {
            info!(version = version.git_version, "Kubernetes API server found");
            check.pass(version.git_version);
        }
        Some(problem) => {
            warn!(version = version.git_version, problem, "Kubernetes is older than supported");
            check.fail(problem);
        }
    }
    shutdown.requested().await;
    Ok(())
}

/// What is wrong with a release. One whose numbers cannot be read is not judged.
fn too_old(major: &str, minor: &str) -> Option<String> {
    // Vendors write 33+.
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().ok();
    let found = (number(major)?, number(minor)?);
    (found < OLDEST).then(|| {
        format!(
            "Kubernetes {}.{} is older than {}.{}, the oldest release that this driver supports; upgrade the cluster",
            found.0, found.1, OLDEST.0, OLDEST.1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, too_old};

    #[test]
    fn releases_before_the_oldest_are_named() {
        for (major, minor) in [("1", "33"), ("1", "33+"), ("1", "36"), ("2", "0"), ("x", "")] {
            assert_eq!(too_old(major, minor), None, "{major}.{minor}");
        }
        for (major, minor) in [("1", "32"), ("1", "32+"), ("1", "9"), ("0", "40")] {
            let text = too_old(major, minor).unwrap();
            assert!(text.contains("older than 1.33"), "{text}");
        }
    }

    #[test]
    fn the_users_page_names_the_same_release() {
        let page = include_str!("../../../../docs/user/csi-driver.md");
        let text = format!("Kubernetes {}.{} or later", OLDEST.0, OLDEST.1);
        assert!(page.contains(&text), "{text}");
    }
}
